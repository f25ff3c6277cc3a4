//! Where a broker lives: one directory per simulated machine.

use std::path::PathBuf;

/// Names the directory; the same one for all processes that shall share GPUs.
pub const DIR: &str = "WEIR_SIMGPU_DIR";
/// Names the configuration file.
pub const CONFIG: &str = "WEIR_SIMGPU_CONFIG";
/// Names the broker's program, if it does not lie beside the library.
pub const BROKER: &str = "WEIR_SIMGPU_BROKER";
/// Where a broker that a library started writes its messages; default nowhere.
pub const LOG: &str = "WEIR_SIMGPU_LOG";
/// The broker's socket in the directory.
pub const SOCKET: &str = "broker.sock";
/// The lock that decides who is the broker.
pub const LOCK: &str = "broker.lock";
/// Why the last broker could not start, for the library that started it to show.
pub const REASON: &str = "broker.reason";

/// The state directory: `$WEIR_SIMGPU_DIR`, else `$XDG_RUNTIME_DIR/weir-simgpu`, else one per user in `/tmp`.
pub fn directory() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(DIR)
        .or_else(|| set("XDG_RUNTIME_DIR").map(|dir| dir.join("weir-simgpu")))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/weir-simgpu-{}", rustix::process::getuid().as_raw())))
}
