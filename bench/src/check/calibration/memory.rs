//! Memory: copies, pages that are mapped, what kernels take of it, and the driver's checkpoint.

use std::io::{self, Write};
use std::time::Duration;

use super::super::park;
use super::super::setup::Setup;
use super::super::side::{Player, Side, Way, number};
use super::Found;
use crate::rig::Control;

/// Bytes of a copy that is timed, in MiB; and in the short form.
const COPY_MIB: (u32, u32) = (512, 64);

/// Copies between host and GPU, of pinned memory, and within the GPU; the latter reads and writes each byte.
pub fn copies(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let mut player = Player::start(&rig, &Side::Twin, "5:1", Way::Bare)?;
    let mib = setup.of(COPY_MIB.0, COPY_MIB.1);
    let defaults = &found.defaults;
    let ways = [
        ("in", "host_to_device_gb_s", "copy to the GPU", defaults.host_to_device_gb_s),
        ("out", "device_to_host_gb_s", "copy from the GPU", defaults.device_to_host_gb_s),
        ("within", "device_gb_s", "memory read and written", defaults.device_gb_s),
    ];
    for (way, key, what, predicted) in ways {
        let gb_s = number(&player.ask(&format!("copy {way} {mib}"), Duration::from_secs(5))?, "gb_s")?;
        let twice = if way == "within" { 2.0 } else { 1.0 };
        found.add(key, what, "GB/s", predicted as f64, twice * gb_s);
    }
    Ok(())
}

/// Pages of the virtual memory calls, which whoever resizes memory maps and unmaps; and what kernels take of the memory once they are
/// loaded, beyond what a context takes.
pub fn pages(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let mut player = Player::start(&rig, &Side::Twin, "5:1", Way::Bare)?;
    let mib = setup.of(COPY_MIB.0, COPY_MIB.1);
    let said = player.ask(&format!("virtual {mib}"), Duration::from_secs(5))?;
    found.add("", "pages made and mapped", "GB/s", None, number(&said, "map_gb_s")?);
    found.add("", "pages unmapped and released", "GB/s", None, number(&said, "unmap_gb_s")?);
    let count = setup.of(1_000, 50);
    let bytes = number(&player.ask(&format!("kernels {count}"), Duration::from_secs(20))?, "bytes")?;
    found.add("", &format!("{count} kernels, each launched once"), "bytes", None, bytes);
    Ok(())
}

/// Reported of an H100 whose 80 GB went to the host in about 15 s.
const CHECKPOINT: (f64, &str) = (80.0 / 15.0, "gpu-truths 1.15");

/// An idle program's memory to the host and back by the driver's checkpoint; nothing where the driver takes none, or the program does not
/// survive it: the story `park` judges that, and the rest of what was measured stands.
pub fn checkpoints(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let parked = match park::park(&rig, &mut Control::of(&rig)?, setup.of(2_048, 256)) {
        Ok(parked) => parked,
        Err(why) => return writeln!(io::stderr(), "calibration: no checkpoint was measured: {why}"),
    };
    for (key, what) in
        [("out_s", "memory to the host by a checkpoint"), ("back_s", "and back, with the next call")]
    {
        if let (Some(bytes), Some(took_s)) = (parked.figures["bytes"].as_f64(), parked.figures[key].as_f64())
        {
            found.add_predicted("", what, "GB/s", Some(CHECKPOINT), bytes / took_s / 1e9);
        }
    }
    Ok(())
}
