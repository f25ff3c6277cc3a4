//! What calls take of the host and of the GPU, and what events say of short kernels.

use std::io;
use std::time::Duration;

use serde_json::Value;

use super::super::setup::Setup;
use super::super::side::{Player, Side, Way, number};
use super::Found;

/// What is known of drivers at large, in nanoseconds: a launch call takes two to three microseconds (section 3 of the collection of what
/// real GPUs do, `gpu-truths.md`), recording an event about one (its rule 5).
const LAUNCH: (f64, &str) = (2_500.0, "gpu-truths 3");
const RECORD: (f64, &str) = (1_000.0, "gpu-truths 1.5");

/// A word that the GPU writes costs the host what an event does (the same, its rule 6).
const WORD: (f64, &str) = (1_000.0, "gpu-truths 1.6");

/// A record between two launches takes their overlap from them (the same, its rule 5): each takes what it takes.
const RECORDED: (f64, &str) = (5.0, "gpu-truths 1.5");

/// A kernel that may start early and is never told to takes what it takes: without a trigger nothing of it overlaps (the CUDA
/// programming guide on programmatic dependent launch).
const DEPENDENT: (f64, &str) = (5.0, "the CUDA programming guide");

/// Units between two events, where what one of them takes is told.
const UNITS: u32 = 200;

/// What calls take of the host, what events and words take of the GPU, and what a launch takes until it is known to be done.
pub fn costs(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let mut player = Player::start(&rig, &Side::Twin, "5:1", Way::Bare)?;
    let mut ask = |order: &str| player.ask(order, Duration::from_secs(3));
    let said = ask("costs")?;
    let units = |order: &str| format!("{order} {UNITS}");
    let (row, events, words) = (ask(&units("row"))?, ask(&units("beside"))?, ask(&units("written"))?);
    let unit_us = |said: &Value| Ok::<_, io::Error>(1e3 * number(said, "gpu_ms")? / f64::from(UNITS));
    let kernel_us = unit_us(&row)?;
    found.add_predicted("launch_cpu_ns", "a launch call", "ns", Some(LAUNCH), number(&said, "launch_ns")?);
    found.add_predicted("", "an event's record call", "ns", Some(RECORD), number(&said, "record_ns")?);
    found.add("", "an event's query", "ns", None, number(&events, "query_ns")?);
    found.add_predicted(
        "",
        "a call for a word that the GPU writes",
        "ns",
        Some(WORD),
        number(&words, "call_ns")?,
    );
    // On the simulated GPU neither takes any of its time.
    found.add("", "an event behind each kernel, on the GPU", "us", 0.0, unit_us(&events)? - kernel_us);
    found.add("", "a word behind each kernel, on the GPU", "us", 0.0, unit_us(&words)? - kernel_us);
    // A driver may refuse waits, and the player ends with that: who reads the file finds no row, and lets launches wait on the host.
    let mut waiter = Player::start(&rig, &Side::Twin, "5:1", Way::Bare)?;
    if let Ok(waits) = waiter.ask(&units("waited"), Duration::from_secs(3)) {
        let wait_ns = 1e3 * (unit_us(&waits)? - kernel_us);
        let predicted = found.defaults.marks.wait_on_host_ns as f64;
        found.add(
            "marks.wait_on_host_ns",
            "a wait for a word that is there, on the GPU",
            "ns",
            predicted,
            wait_ns,
        );
    }
    let beyond = number(&said, "round_trip_ns")? / 1e3 - kernel_us;
    let predicted = found.defaults.submit_to_start_us as f64;
    found.add(
        "submit_to_start_us",
        "launch to known to be done, less the kernel (an upper bound)",
        "us",
        predicted,
        beyond,
    );
    found.add("sms", "SMs", "", f64::from(found.defaults.sms), number(&said, "sms")?);
    // Last: a driver or a GPU that does not know the attribute refuses, and the player ends with that.
    if let Ok(dependent) = ask(&units("dependent")) {
        let each_us = unit_us(&dependent)?;
        let what = "a kernel of 5 us whose start may overlap the last one's end";
        found.add_predicted("", what, "us", Some(DEPENDENT), each_us);
        // The simulated GPU knows no overlap of one stream's kernels: both are the kernel's length there.
        if let Ok(early) = ask(&units("early")) {
            let recorded_us = 1e3 * number(&early, "recorded_ms")? / f64::from(UNITS);
            found.add("", "the same, and it lets the next one begin at once", "us", None, unit_us(&early)?);
            found.add_predicted("", "and with an event between each two", "us", Some(RECORDED), recorded_us);
        }
    }
    Ok(())
}

/// Short kernels: in a row between two events, and one by itself between two.
pub fn lengths(setup: &Setup, found: &mut Found) -> io::Result<()> {
    let rig = setup.rig()?;
    let mut player = Player::start(&rig, &Side::Twin, "5:132", Way::Bare)?;
    for us in setup.of(&[2, 5, 20, 100][..], &[5, 100][..]) {
        player.take_up(&format!("{us}:132"))?;
        let row = player.ask(&format!("row {UNITS}"), Duration::from_secs(2))?;
        let row_us = 1e3 * number(&row, "gpu_ms")? / f64::from(UNITS);
        let single = player.ask(&format!("single {}", UNITS / 4), Duration::from_secs(2))?;
        found.add("", &format!("a kernel of {us} us in a row"), "us", f64::from(*us), row_us);
        let beyond_us = number(&single, "gpu_us")? - row_us;
        found.add("", "and by itself between two events, beyond that", "us", 0.0, beyond_us);
    }
    Ok(())
}
