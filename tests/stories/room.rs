//! A node manager whose directory has no room, or may not be written: it does not start with half of what it promises
//! (faults A.5, F26). What happens when the room goes while it runs, `restart` in `nodemgr/tests/daemon` tells.

use weir_tests::mounts;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

/// Mounts over the node manager's directory.
const FULL: &str = "mount -t tmpfs -o size=8k,mode=700 none \"$T/node\"; \
                    head -c 100000 /dev/zero >\"$T/node/fill\" 2>/dev/null || true";
const READ_ONLY: &str = "mount -t tmpfs -o ro,mode=700 none \"$T/node\"";

#[test]
fn a_node_manager_that_cannot_write_its_directory_does_not_start_and_says_which() {
    let way = match mounts::permitted() {
        Ok(way) => way,
        Err(skipped) => return eprintln!("{skipped}"),
    };
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    for mount in [FULL, READ_ONLY] {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let script = format!("mkdir \"$T/node\"; {mount}");
        let weir = mounts::program(way, &gpu, scratch.path(), &script, &gpu.dist().weir());
        let ended = weir.arg("--dir").arg(scratch.path().join("node")).arg("node").run();
        assert_eq!(ended.status.code(), Some(78), "{}", ended.stderr);
        let place = scratch.path().join("node").display().to_string();
        assert!(ended.stderr.contains(&place) && ended.stderr.contains("help: "), "{}", ended.stderr);
    }
}
