//! Conditional nodes: bodies of which one runs, or one again and again, as a switch says.
//!
//! On a GPU kernels set the switch (`cudaGraphSetConditional`, device code). Kernels compute nothing here, so two names
//! stand in for such kernels: `weir_set_conditional(handle, value)` sets it, `weir_count_down(handle)` takes one from it,
//! both with 64-bit parameters that are read when the node is made. A switch that neither of them sets has its default.
//! The driver decides when the graph is launched, in the order of its nodes: a loop that a kernel of the same launch ends
//! runs as often as on a GPU, one that nobody ends so often and no more:
const MOST_ROUNDS: usize = 1_000;

use std::ffi::*;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weir_abi::types::*;

use super::{Graph, create, of};
use crate::api::Driver;
use crate::context::Context;
use crate::edge::{Answer, put};
use crate::registry::Registry;

static CONDITIONS: Registry<Condition> = Registry::new(19, CUDA_ERROR_INVALID_VALUE);

/// A switch.
pub struct Condition {
    graph: *mut c_void,
    /// What each launch begins with; `None`: with what the last one left.
    default: Option<u32>,
    value: AtomicU32,
    used: AtomicBool,
}

// SAFETY: the graph's handle is a number in a pointer's clothes.
unsafe impl Send for Condition {}
// SAFETY: as above; the rest is atomic.
unsafe impl Sync for Condition {}

/// What a kernel by one of the two names does to a switch.
#[derive(Clone, Copy)]
pub struct Setting {
    condition: &'static Condition,
    value: Option<u32>,
}

/// The two names.
#[derive(Clone, Copy)]
pub enum Sets {
    /// The second parameter.
    Value,
    /// One less than before.
    OneLess,
}

impl Sets {
    /// By the kernel's name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "weir_set_conditional" => Some(Self::Value),
            "weir_count_down" => Some(Self::OneLess),
            _ => None,
        }
    }

    /// With these parameters.
    pub fn with(self, parameter: impl Fn(usize) -> Answer<u64>) -> Answer<Setting> {
        let condition = CONDITIONS.get(handle(parameter(0)?))?;
        let value = match self {
            Self::Value => Some(u32::try_from(parameter(1)?).map_err(|_| CUDA_ERROR_INVALID_VALUE)?),
            Self::OneLess => None,
        };
        Ok(Setting { condition, value })
    }
}

impl Setting {
    /// The kernel is launched.
    pub fn apply(&self) {
        // Relaxed: launches of one graph come one after the other.
        let before = self.condition.value.load(Ordering::Relaxed);
        self.condition.value.store(self.value.unwrap_or(before.saturating_sub(1)), Ordering::Relaxed);
    }
}

/// A conditional node.
#[derive(Clone)]
pub struct Conditional {
    condition: &'static Condition,
    kind: CUgraphConditionalNodeType,
    /// The bodies; whoever made the node fills them.
    pub bodies: Vec<&'static Graph>,
}

impl Conditional {
    /// From the description, into which the bodies are written.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a switch that is unknown or has a node, and for a number of bodies that the kind
    /// does not have.
    pub fn new(node: &mut CUDA_CONDITIONAL_NODE_PARAMS) -> Answer<Self> {
        let fits = match node.kind {
            CU_GRAPH_COND_TYPE_IF => (1..=2).contains(&node.size),
            CU_GRAPH_COND_TYPE_WHILE => node.size == 1,
            CU_GRAPH_COND_TYPE_SWITCH => node.size > 0,
            _ => false,
        };
        let condition = CONDITIONS.get(handle(node.handle))?;
        if !fits || condition.used.swap(true, Ordering::Relaxed) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let bodies = (0..node.size).map(|_| create()).collect::<Answer<Vec<_>>>()?;
        // The driver's own for the node's life: a few words, left behind.
        let handles: Vec<CUgraph> = bodies.iter().map(|body| body.handle.raw()).collect();
        node.bodies = Box::leak(handles.into_boxed_slice()).as_mut_ptr();
        Ok(Self { condition, kind: node.kind, bodies })
    }

    /// A launch of the graph begins.
    pub fn begin(&self) {
        if let Some(default) = self.condition.default {
            self.condition.value.store(default, Ordering::Relaxed);
        }
    }

    /// Runs the bodies that the switch asks for, by their numbers.
    pub fn run(&self, mut body: impl FnMut(usize) -> Answer) -> Answer {
        let value = || self.condition.value.load(Ordering::Relaxed);
        match (self.kind, value()) {
            (CU_GRAPH_COND_TYPE_WHILE, _) => {
                (0..MOST_ROUNDS).take_while(|_| value() != 0).try_for_each(|_| body(0))
            }
            (CU_GRAPH_COND_TYPE_IF, 0) if self.bodies.len() == 2 => body(1),
            (CU_GRAPH_COND_TYPE_IF, 0) => Ok(()),
            (CU_GRAPH_COND_TYPE_IF, _) => body(0),
            (_, value) if (value as usize) < self.bodies.len() => body(value as usize),
            _ => Ok(()),
        }
    }
}

/// Whether a graph has switches without a node.
pub fn has_unused(graph: &Graph) -> bool {
    let of_graph = |condition: &&Condition| ptr::eq(condition.graph, graph.handle.raw());
    CONDITIONS.living().filter(of_graph).any(|condition| !condition.used.load(Ordering::Relaxed))
}

fn handle(number: u64) -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(number).unwrap_or(0))
}

impl Driver {
    pub fn cuGraphConditionalHandleCreate(
        out: *mut CUgraphConditionalHandle,
        graph: CUgraph,
        context: CUcontext,
        default: c_uint,
        flags: c_uint,
    ) -> Answer {
        let graph = of(graph)?.handle.raw();
        Context::of(context)?;
        if flags & !CU_GRAPH_COND_ASSIGN_DEFAULT != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let default = (flags != 0).then_some(default);
        let (value, used) = (AtomicU32::new(0), AtomicBool::new(false));
        let made = CONDITIONS.insert(Condition { graph, default, value, used })?;
        put(out, made.0.raw().addr() as u64)
    }
}
