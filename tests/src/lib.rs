//! What the stories stand on: the laid-out build, a simulated GPU, a node manager and programs under them. Each
//! story makes its own of all of these, so none can see another; each panics with what was seen when something
//! does not come about in time. `driver`, `client` and `obeying` are what the programs that they drive have in common.

pub mod asked;
pub mod cgroup;
pub mod client;
pub mod cluster;
pub mod compile;
pub mod container;
pub mod copies;
pub mod dist;
pub mod driver;
pub mod exports;
pub mod graphs;
pub mod life;
pub mod looping;
pub mod memory;
pub mod mounts;
pub mod node;
pub mod obeying;
pub mod peers;
pub mod podman;
pub mod program;
pub mod said;
pub mod shown;
pub mod simgpu;
pub mod supervisor;
pub mod wait;
