//! The simulated GPU's configuration for these programs: the times of a card, longer by the programs' factor, and what
//! their kernels cost.

use std::fmt::Write;

use weir_simgpu_link::config::Config;

use crate::shapes::Kernel;

/// Times of the card, us, by their keys. Source: an H200; slices re-armed at each switch, a switch after a drain, what one
/// in mid-kernel takes beyond that (one warp, all SMs full), and a launch to its start.
const TIMES_US: [(&str, f64); 5] = [
    ("slice_us", 2_060.0),
    ("switch_us", 140.0),
    ("cut_least_us", 13.0),
    ("cut_most_us", 55.0),
    ("submit_to_start_us", 9.0),
];

/// What marks take of the GPU, ns, by their keys in `[marks]`. Source: the same.
const MARKS_NS: [(&str, f64); 4] = [
    ("timed_event_ns", 2_080.0),
    ("write_ns", 2_080.0),
    ("wait_on_host_ns", 2_270.0),
    ("wait_on_device_ns", 1_450.0),
];

/// The file. Only keys that the simulated GPU has stand in it.
pub fn configuration(slow: f64) -> String {
    let known = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut text = keys(&known, &TIMES_US, slow);
    if let Some(marks) = known.get("marks") {
        text += "[marks]\n";
        text += &keys(marks, &MARKS_NS, slow);
    }
    for kernel in Kernel::ALL {
        let (name, time_us) = (kernel.name(), kernel.time_us() * slow);
        let _ = writeln!(text, "[[kernel]]\nname = \"{name}\"\ntime_us = {time_us:.3}");
    }
    text
}

/// Lines of those keys that are known.
fn keys(known: &serde_json::Value, times: &[(&str, f64)], slow: f64) -> String {
    let known = times.iter().filter(|(key, _)| known.get(key).is_some());
    known.map(|(key, time)| format!("{key} = {:.0}\n", (time * slow).max(1.0))).collect()
}
