//! The published tables: GPU allocation by workload, policy, seed and load.

use std::collections::HashMap;
use std::path::Path;

use weir_cluster::fault::Fault;
use weir_cluster::trace::lines;

const HELP: &str = "the table has workload, sc_policy and one column for each percent of load";

/// Mean allocation in percent, by workload, policy and load.
pub struct Published {
    means: HashMap<(String, String, u32), f64>,
}

impl Published {
    /// Reads the columns of these loads from the table at `path`.
    ///
    /// # Errors
    /// With file and line, when it is no such table.
    pub fn read(path: &Path, loads: &[u32]) -> Result<Self, Fault> {
        let mut sums: HashMap<(String, String, u32), (f64, f64)> = HashMap::new();
        for line in lines::read::<HashMap<String, String>>(path, HELP)? {
            let fault = |message: String| Fault::input(path.display(), line.number, message, HELP);
            let cell = |column: &str| {
                line.row.get(column).cloned().ok_or_else(|| fault(format!("no column `{column}`")))
            };
            let workload = cell("workload")?.trim_start_matches("openb_pod_list_").to_owned();
            for load in loads {
                let text = cell(&load.to_string())?;
                let value: f64 = text.parse().map_err(|_| fault(format!("`{text}` is no percentage")))?;
                let sum = sums.entry((workload.clone(), cell("sc_policy")?, *load)).or_default();
                *sum = (sum.0 + value, sum.1 + 1.0);
            }
        }
        Ok(Self { means: sums.into_iter().map(|(key, (sum, count))| (key, sum / count)).collect() })
    }

    /// The mean of all seeds.
    pub fn mean(&self, workload: &str, policy: &str, load: u32) -> Option<f64> {
        self.means.get(&(workload.to_owned(), policy.to_owned(), load)).copied()
    }
}
