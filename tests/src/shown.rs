//! Where a state that is not `enforced` must show, beside the process's own stderr: `weir ps`, a metric, an event (faults A.3).

use weir_nodemgr::web::metrics;

use crate::node::Node;
use crate::wait;

/// Whether `weir ps` and the metric of states say that a tenant is in this state.
///
/// # Panics
/// If there is no page of metrics.
pub fn in_ps_and_metrics(node: &Node<'_>, tenant: &str, state: &str) -> bool {
    let ps = node.says(&["ps"]);
    let mut rows = ps.lines().filter(|line| line.split_whitespace().next() == Some(tenant));
    let in_ps = rows.any(|row| row.split_whitespace().any(|word| word == state));
    let row = format!("weir_tenant_state{{tenant=\"{tenant}\",state=\"{state}\"}} 1.0");
    in_ps && metric(node, &row)
}

/// Whether this row stands on the page of metrics.
///
/// # Panics
/// If there is none.
pub fn metric(node: &Node<'_>, row: &str) -> bool {
    let page = metrics::page(&node.stats()).expect("it is written into memory");
    page.lines().any(|line| line == row)
}

/// Waits until a tenant's state shows in all three places.
pub fn everywhere(node: &Node<'_>, tenant: &str, state: &str) {
    wait::until(state, || in_ps_and_metrics(node, tenant, state).then_some(()));
    let told = format!("NOT ENFORCED: {state}");
    let of_tenant = |line: &str| line.contains(&format!("  {tenant} on GPU")) && line.contains(&told);
    wait::until("the event", || node.says(&["events"]).lines().any(of_tenant).then_some(()));
}
