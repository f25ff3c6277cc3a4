//! The openb trace of a production cluster: a list of nodes and lists of pods (Alibaba cluster-trace-gpu-v2023, as used by
//! FGD, USENIX ATC 2023).
//!
//! ```text
//! nodes  sn,cpu_milli,memory_mib,gpu,model
//! pods   name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time]
//! ```
//!
//! `gpu_spec` names the models that will do, joined by `|`; empty: any. The trace has no demand for GPU memory. Two of its
//! models are not disclosed: [`WATTS`] says what is assumed of them.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;
use weir_protocol::units::{Bytes, SmShare};

use super::lines::{self, Line};
use crate::cluster::{
    Bounds, ClassSet, Cluster, ClusterError, Demand, DeviceClass, Kind, MilliCpu, NodeSpec, Socket,
};
use crate::fault::Fault;

const NODE_HELP: &str =
    "a node list has the columns sn,cpu_milli,memory_mib,gpu,model; 0 to 16 GPUs, whose model is named";
const POD_HELP: &str = "a pod list has the columns name,cpu_milli,memory_mib,num_gpu,gpu_milli and may have gpu_spec, qos, \
    pod_phase, creation_time, deletion_time, scheduled_time; 0 to 16 GPUs, 1 to 1000 thousandths of each";
/// GPUs of one node or pod at most.
const MOST_GPUS: u8 = 16;

/// Idle and full watts by model (arXiv 2412.17484, as its authors' code has them). `G2` and `G3` are not disclosed by the
/// trace: G2 is assumed to draw what an A10 draws, G3 what an A100 draws.
pub const WATTS: &[(&str, f64, f64)] = &[
    ("T4", 10.0, 70.0),
    ("A10", 30.0, 150.0),
    ("P100", 25.0, 250.0),
    ("V100M16", 30.0, 300.0),
    ("V100M32", 30.0, 300.0),
    ("G2", 30.0, 150.0),
    ("G3", 50.0, 400.0),
];

/// The other assumption about the undisclosed models: both like a P100.
pub const UNDISCLOSED_LIKE_P100: &[(&str, f64, f64)] = &[("G2", 25.0, 250.0), ("G3", 25.0, 250.0)];

/// A socket of 32 hardware threads, idle 15 W, full 120 W; assumed of all nodes.
pub const SOCKET: Socket = Socket { cpu: MilliCpu(32_000), idle_watts: 15.0, full_watts: 120.0 };

/// A cluster and what came to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Openb {
    /// GPU models, in order of appearance.
    pub classes: Vec<DeviceClass>,
    /// Nodes, in the order of the list.
    pub nodes: Vec<NodeSpec>,
    /// Pods, in the order of the list.
    pub pods: Vec<Pod>,
    /// What processors draw.
    pub socket: Socket,
}

/// One pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// What it needs.
    pub demand: Demand,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeRow {
    sn: String,
    cpu_milli: u32,
    memory_mib: u32,
    gpu: u8,
    model: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodRow {
    name: String,
    cpu_milli: u32,
    memory_mib: u32,
    num_gpu: u8,
    gpu_milli: u16,
    #[serde(default)]
    gpu_spec: String,
    #[serde(default, rename = "qos")]
    _qos: String,
    #[serde(default, rename = "pod_phase")]
    _phase: String,
    #[serde(default, rename = "creation_time")]
    _created: Option<f64>,
    #[serde(default, rename = "deletion_time")]
    _deleted: Option<f64>,
    #[serde(default, rename = "scheduled_time")]
    _scheduled: Option<f64>,
}

impl Openb {
    /// Reads a node list and a pod list.
    ///
    /// # Errors
    /// With file and line: what cannot be read, is no such list, or contradicts itself.
    pub fn read(nodes: &Path, pods: &Path) -> Result<Self, Fault> {
        let mut trace = Self { classes: Vec::new(), nodes: Vec::new(), pods: Vec::new(), socket: SOCKET };
        let mut names = HashSet::new();
        for line in lines::read::<NodeRow>(nodes, NODE_HELP)? {
            let number = line.number;
            let fault = |message: String| Fault::input(nodes.display(), number, message, NODE_HELP);
            if !names.insert(line.row.sn.clone()) {
                return Err(fault(format!("node `{}` stands there twice", line.row.sn)));
            }
            let spec = trace.node(line.row).map_err(fault)?;
            trace.nodes.push(spec);
        }
        names.clear();
        let empty = trace
            .cluster(0..trace.nodes.len())
            .map_err(|error| Fault::from(error).at(nodes.display().to_string()))?;
        for Line { number, row } in lines::read::<PodRow>(pods, POD_HELP)? {
            let fault = |message: String| Fault::input(pods.display(), number, message, POD_HELP);
            if !names.insert(row.name.clone()) {
                return Err(fault(format!("pod `{}` stands there twice", row.name)));
            }
            let name = row.name.clone();
            let demand = demand(&empty, &row).map_err(fault)?;
            trace.pods.push(Pod { name, demand });
        }
        Ok(trace)
    }

    fn node(&mut self, row: NodeRow) -> Result<NodeSpec, String> {
        let NodeRow { sn, cpu_milli, memory_mib, gpu, model } = row;
        match (gpu, model.is_empty()) {
            (1.., true) => return Err(format!("{gpu} GPUs of no model")),
            (0, false) => return Err(format!("model `{model}`, but no GPU")),
            (count, _) if count > MOST_GPUS => return Err(format!("{count} GPUs, more than {MOST_GPUS}")),
            _ => {}
        }
        let (cpu, memory) = (MilliCpu(cpu_milli), Bytes::mib(memory_mib.into()));
        let class = (gpu > 0).then(|| self.class_of(&model));
        Ok(NodeSpec { name: sn, cpu, memory, gpus: gpu, class, site: 0 })
    }

    fn class_of(&mut self, model: &str) -> crate::cluster::ClassId {
        let known = self.classes.iter().position(|class| class.name == model);
        let place = known.unwrap_or_else(|| {
            self.classes.push(device_class(model));
            self.classes.len() - 1
        });
        crate::cluster::ClassId::from_index(u8::try_from(place).unwrap_or(u8::MAX))
    }

    /// The same with other watts for these models.
    #[must_use]
    pub fn with_watts(mut self, watts: &[(&str, f64, f64)]) -> Self {
        for (model, idle, full) in watts {
            for class in self.classes.iter_mut().filter(|class| class.name == *model) {
                (class.idle_watts, class.full_watts) = (*idle, *full);
            }
        }
        self
    }

    /// The cluster, empty, with its nodes added in `order`.
    ///
    /// # Errors
    /// When it has too many device classes.
    pub fn cluster(&self, order: impl IntoIterator<Item = usize>) -> Result<Cluster, ClusterError> {
        let mut cluster = Cluster::new(Bounds::default());
        cluster.set_socket(self.socket);
        for class in &self.classes {
            cluster.add_class(class.clone())?;
        }
        for place in order {
            cluster.add_node(self.nodes[place].clone())?;
        }
        Ok(cluster)
    }

    /// GPUs of all nodes.
    pub fn gpus(&self) -> u32 {
        self.nodes.iter().map(|node| u32::from(node.gpus)).sum()
    }
}

fn device_class(model: &str) -> DeviceClass {
    let known = WATTS.iter().find(|(name, ..)| *name == model);
    let (idle_watts, full_watts) = known.map_or((0.0, 0.0), |(_, idle, full)| (*idle, *full));
    DeviceClass { idle_watts, full_watts, ..DeviceClass::new(model, Bytes(0)) }
}

fn demand(cluster: &Cluster, row: &PodRow) -> Result<Demand, String> {
    match (row.num_gpu, row.gpu_milli) {
        (0, 1..) => return Err(format!("{} thousandths of no GPU", row.gpu_milli)),
        (1.., 0) => return Err(format!("no share of {} GPUs", row.num_gpu)),
        (_, milli) if milli > 1000 => return Err(format!("{milli} thousandths of one GPU")),
        (count, _) if count > MOST_GPUS => return Err(format!("{count} GPUs, more than {MOST_GPUS}")),
        _ => {}
    }
    let share = SmShare::permille(row.gpu_milli);
    let models = || row.gpu_spec.split('|').filter(|model| !model.is_empty());
    // A model that no node has adds nothing to the set; a pod that allows only such models fits nowhere, and is told so.
    let classes = match models().next() {
        None => ClassSet::ANY,
        Some(_) => models().filter_map(|model| cluster.class(model)).collect(),
    };
    let (cpu, memory) = (MilliCpu(row.cpu_milli), Bytes::mib(row.memory_mib.into()));
    let base = Demand { gpus: row.num_gpu, request: share, limit: share, ..Demand::default() };
    Ok(Demand { cpu, memory, classes, kind: Kind::Inference, ..base })
}
