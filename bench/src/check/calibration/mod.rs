//! Calibration: what the GPU is like where no document says it. `weir doctor --measure` runs this alone, in about a minute; the story
//! runs the same. It changes no setting of the card. The result is a configuration of the simulated GPU: started with it, that is like
//! this card (`WEIR_SIMGPU_CONFIG`), and `weir sim --calibration` takes slice and switch from it. Each measurement stands beside what
//! the simulated GPU is configured to or assumes by default; run on the simulated one it shows how well these measurements find out
//! what is known.

mod calls;
mod memory;
mod power;
mod sharing;

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_simgpu_link::config::Config;

use super::finding::Finding;
use super::setup::Setup;
pub use sharing::{left_beside_a_spinner, two_contexts};

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Key in the simulated GPU's configuration, if it has one.
    pub key: Option<String>,
    /// What was measured.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// What it was taken for before it was measured.
    pub predicted: Option<f64>,
    /// Where that stands; nothing where nobody has a prediction.
    #[serde(default)]
    pub source: Option<String>,
    /// What it is.
    pub measured: f64,
}

/// Where most predictions stand.
const MODEL: &str = "the simulated GPU's model and defaults";

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let mut found = Found { rows: Vec::new(), defaults: Config::default(), card: Value::Null };
    let parts = [
        sharing::slices,
        sharing::arrivals,
        sharing::beside_a_spinner,
        sharing::beside_a_wait,
        calls::costs,
        calls::lengths,
        memory::copies,
        memory::pages,
        power::measure,
        memory::checkpoints, // last: what it meets on a card is the least known
    ];
    for part in parts {
        part(setup, &mut found)?;
        setup.note(&found.finding(setup))?;
    }
    Ok(found.finding(setup))
}

/// What has been found so far.
struct Found {
    rows: Vec<Row>,
    defaults: Config,
    card: Value,
}

impl Found {
    /// What the simulated GPU's model or defaults have a prediction for, or nobody has.
    fn add(&mut self, key: &str, what: &str, unit: &str, predicted: impl Into<Option<f64>>, measured: f64) {
        let predicted = predicted.into().map(|predicted| (predicted, MODEL));
        self.add_predicted(key, what, unit, predicted, measured);
    }

    /// What is predicted elsewhere.
    fn add_predicted(
        &mut self,
        key: &str,
        what: &str,
        unit: &str,
        predicted: Option<(f64, &str)>,
        measured: f64,
    ) {
        let key = (!key.is_empty()).then(|| key.to_owned());
        let (what, unit) = (what.to_owned(), unit.to_owned());
        let (predicted, source) = predicted.map(|(predicted, source)| (predicted, source.to_owned())).unzip();
        self.rows.push(Row { key, what, unit, predicted, source, measured });
    }

    fn finding(&self, setup: &Setup) -> Finding {
        let told: Vec<String> = self.rows.iter().map(Row::told).collect();
        // What the simulated GPU is configured to must come out as what it is, within what a busy machine adds.
        let slice = self.rows.iter().find(|row| row.key.as_deref() == Some("slice_us"));
        let known =
            |row: &Row| row.predicted.is_some_and(|predicted| (row.measured / predicted - 1.0).abs() < 0.3);
        let finite = self.rows.iter().all(|row| row.measured.is_finite());
        Finding {
            // What a real card's slice is nobody knows beforehand.
            holds: Some(finite && (!setup.simulated || slice.is_none_or(known))),
            line: told.join("; "),
            figures: json!({"rows": self.rows, "card": self.card}),
            ..Finding::default()
        }
    }
}

impl Row {
    /// A line for people.
    pub fn told(&self) -> String {
        let by = self.source.as_deref().filter(|source| *source != MODEL);
        let by = by.map_or_else(String::new, |source| format!(" by {source}"));
        let predicted = self.predicted.map(|predicted| format!("predicted {predicted:.4}{by}"));
        let predicted = predicted.unwrap_or_else(|| "nobody predicts it".into());
        format!("{} {:.4} {} ({predicted})", self.what, self.measured, self.unit)
    }
}

/// What NVML says of the card: only a real one has more to tell than that it is none.
pub fn card(simulated: bool) -> io::Result<Value> {
    if simulated {
        return Ok(json!({"name": "simulated"}));
    }
    let library = "libnvidia-ml.so.1".as_ref();
    let nvml = nvml_wrapper::Nvml::builder().lib_path(library).init().map_err(io::Error::other)?;
    let device = nvml.device_by_index(0).map_err(io::Error::other)?;
    Ok(json!({
        "name": device.name().map_err(io::Error::other)?,
        "driver": nvml.sys_driver_version().ok(),
        "cuda": nvml.sys_cuda_driver_version().ok(),
        "memory_bytes": device.memory_info().ok().map(|memory| memory.total),
        "power_limit_mw": device.enforced_power_limit().ok(),
    }))
}
