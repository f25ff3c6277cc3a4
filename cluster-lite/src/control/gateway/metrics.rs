//! The counts as Prometheus text.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::control::route::Traffic;

/// What the text is, by the format's own name.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// The page.
pub(super) fn page(traffic: &Traffic) -> String {
    let arrived = Family::<Labels, Counter>::default();
    let ended = Family::<Labels, Counter>::default();
    let retried = Family::<Labels, Counter>::default();
    let queued = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    let outstanding = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (name, service) in &traffic.services {
        let labels = vec![("service", name.clone())];
        let with = |outcome: &str| [labels.clone(), vec![("outcome", outcome.to_owned())]].concat();
        arrived.get_or_create(&labels).inc_by(service.arrived);
        retried.get_or_create(&labels).inc_by(service.retried);
        ended.get_or_create(&with("answered")).inc_by(service.answered);
        ended.get_or_create(&with("abandoned")).inc_by(service.abandoned);
        for (reason, count) in &service.refused {
            ended.get_or_create(&with(reason)).inc_by(*count);
        }
        queued.get_or_create(&labels).set(service.queued as f64);
        for (id, backend) in &service.backends {
            let labels = [labels.clone(), vec![("instance", id.to_string())]].concat();
            outstanding.get_or_create(&labels).set(backend.outstanding as f64);
        }
    }
    let mut registry = Registry::default();
    registry.register("weir_cluster_requests_arrived", "Requests that came", arrived);
    registry.register("weir_cluster_requests_ended", "Requests by how they ended", ended);
    registry.register("weir_cluster_requests_retried", "Requests sent to a second instance", retried);
    registry.register("weir_cluster_requests_queued", "Requests that wait", queued);
    registry.register("weir_cluster_requests_outstanding", "Requests that an instance has", outstanding);
    let mut text = String::new();
    let _ = encode(&mut text, &registry); // into memory: it cannot fail
    text
}
