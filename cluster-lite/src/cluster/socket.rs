//! What the processors of a node draw.

use super::{MilliCpu, NodeState};

/// One processor socket, the same on all nodes: like a GPU it draws one power with nobody on it and another with anybody.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Socket {
    /// Processors of one socket.
    pub cpu: MilliCpu,
    /// Watts with nobody on it.
    pub idle_watts: f64,
    /// Watts with anybody on it.
    pub full_watts: f64,
}

impl Default for Socket {
    /// A socket that draws nothing: power of processors is not counted.
    fn default() -> Self {
        Self { cpu: MilliCpu(32_000), idle_watts: 0.0, full_watts: 0.0 }
    }
}

impl Socket {
    /// Sockets that `cpu` keeps awake; tenants fill one after the other.
    fn sockets(&self, cpu: MilliCpu) -> f64 {
        f64::from(cpu.0.div_ceil(self.cpu.0.max(1)))
    }

    /// Watts of all sockets of `node`, when `used` processors have somebody on them.
    fn watts(&self, node: &NodeState, used: MilliCpu) -> f64 {
        let all = self.sockets(node.cpu);
        let awake = self.sockets(used).min(all);
        awake * self.full_watts + (all - awake) * self.idle_watts
    }

    /// Watts of the processors of `node`.
    pub fn node_watts(&self, node: &NodeState) -> f64 {
        self.watts(node, node.cpu_used())
    }

    /// Watts that `more` processors add on `node`.
    pub fn added_watts(&self, node: &NodeState, more: MilliCpu) -> f64 {
        let used = node.cpu_used();
        self.watts(node, MilliCpu(used.0.saturating_add(more.0))) - self.watts(node, used)
    }

    /// The most that `more` processors can add on any node.
    pub fn most_added_watts(&self, more: MilliCpu) -> f64 {
        self.sockets(more) * (self.full_watts - self.idle_watts)
    }
}
