//! Which GPUs a program sees: `CUDA_VISIBLE_DEVICES` as we find it, and as we leave it. Source: CUDA C++ Programming Guide, "CUDA Environment
//! Variables".
//!
//! Programs count (vLLM, dask-cuda and others read the entries as numbers), so they get numbers in the order of the bus, which is NVML's,
//! unless UUIDs are asked for.

use crate::codes;
use crate::control::schema::Created;
use crate::fault::Fault;

/// The variable.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// How numbers count: by the bus, as NVML does, and not the fastest first.
const ORDER: (&str, &str) = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");

/// How a program is told its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Visible {
    /// By NVML's number
    Index,
    /// By UUID
    Uuid,
}

/// The GPUs that are visible here: what an outer `weir run`, Slurm or a person has set.
pub(super) struct Before(Option<String>);

impl Before {
    pub(super) fn of_environment() -> Self {
        Self(std::env::var(VISIBLE).ok())
    }

    /// Whether somebody has hidden all of them.
    pub(super) fn hides_all(&self) -> bool {
        self.entries().is_some_and(|entries| entries.is_empty())
    }

    /// What is visible. The list ends where an entry names no device: `-1`, or Slurm's `NoDevFiles`.
    fn entries(&self) -> Option<Vec<&str>> {
        let names_one = |entry: &&str| {
            entry.starts_with("GPU-") || entry.starts_with("MIG-") || entry.parse::<usize>().is_ok()
        };
        Some(self.0.as_ref()?.split(',').map(str::trim).take_while(names_one).collect())
    }

    /// The GPUs that `--gpu` means, by their names on the node: an index counts the visible ones.
    pub(super) fn meant(&self, gpus: &[String]) -> Result<Vec<String>, Fault> {
        let Some(entries) = self.entries() else { return Ok(gpus.to_vec()) };
        let meant = |gpu: &String| match gpu.parse::<usize>() {
            Ok(index) => entries.get(index).map(ToString::to_string).ok_or_else(|| {
                let message = format!(
                    "`--gpu {gpu}` is not among the GPUs that are visible here: an index counts them"
                );
                let help = "name another index, or a UUID as `nvidia-smi -L` does";
                self.shown(Fault::new(&codes::GPU_UNKNOWN, message, help))
            }),
            Err(_) => Ok(gpu.clone()),
        };
        gpus.iter().map(meant).collect()
    }

    /// The same fault, with what the variable says.
    pub(super) fn shown(&self, fault: Fault) -> Fault {
        match &self.0 {
            Some(visible)
                if [codes::GPU_UNKNOWN.code, codes::GPU_MIG.code].contains(&fault.code.as_str()) =>
            {
                fault.at(format!("{VISIBLE}={}", visible.escape_debug()))
            }
            _ => fault,
        }
    }
}

/// What a program on the node is told.
pub(super) fn on_node(created: &Created, visible: Visible) -> Vec<(&'static str, String)> {
    match visible {
        Visible::Index if !created.gpu_indices.is_empty() => variables(&created.gpu_indices),
        _ => vec![(VISIBLE, created.gpus.join(","))], // or the manager is of an older version
    }
}

/// What a program in a container is told that has these GPUs of the node and no others: their numbers there.
pub(super) fn in_container(
    indices: &[usize],
    uuids: &[String],
    visible: Visible,
) -> Vec<(&'static str, String)> {
    match visible {
        Visible::Index => {
            let rank = |index: &usize| indices.iter().filter(|other| *other < index).count();
            variables(&indices.iter().map(rank).collect::<Vec<_>>())
        }
        Visible::Uuid => vec![(VISIBLE, uuids.join(","))],
    }
}

/// A program that sees all GPUs of a node, told these.
pub(super) fn variables(indices: &[usize]) -> Vec<(&'static str, String)> {
    let listed = indices.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    vec![(ORDER.0, ORDER.1.to_owned()), (VISIBLE, listed)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(visible: Option<&str>, gpus: &[&str]) -> Result<Vec<String>, String> {
        let gpus: Vec<_> = gpus.iter().map(ToString::to_string).collect();
        Before(visible.map(Into::into)).meant(&gpus).map_err(|fault| fault.at.unwrap_or_default())
    }

    #[test]
    fn an_index_counts_what_is_visible_and_a_uuid_means_itself() {
        let all = |names: &[&str]| Ok(names.iter().map(ToString::to_string).collect());
        assert_eq!(meant(None, &["1"]), all(&["1"]));
        assert_eq!(meant(Some("3,1"), &["0", "1"]), all(&["3", "1"]));
        assert_eq!(meant(Some(" GPU-ab , 2"), &["0"]), all(&["GPU-ab"]));
        assert_eq!(meant(Some("3"), &["GPU-cd"]), all(&["GPU-cd"]));
        assert_eq!(meant(Some("3,1"), &["2"]), Err("CUDA_VISIBLE_DEVICES=3,1".into()));
        assert_eq!(meant(Some("3,-1,1"), &["1"]), Err("CUDA_VISIBLE_DEVICES=3,-1,1".into()), "it ends there");
    }

    #[test]
    fn who_shows_none_hides_all() {
        let hides = |visible: Option<&str>| Before(visible.map(Into::into)).hides_all();
        assert_eq!(
            [Some(""), Some("-1"), Some("NoDevFiles"), Some("0"), None].map(hides),
            [true, true, true, false, false]
        );
    }

    #[test]
    fn in_a_container_the_gpus_count_from_zero_in_the_order_of_the_bus() {
        let told = |indices: &[usize], visible| in_container(indices, &["GPU-x".into()], visible);
        assert_eq!(
            told(&[7, 3], Visible::Index),
            [("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()), ("CUDA_VISIBLE_DEVICES", "1,0".into())]
        );
        assert_eq!(told(&[7], Visible::Uuid), [("CUDA_VISIBLE_DEVICES", "GPU-x".to_owned())]);
    }
}
