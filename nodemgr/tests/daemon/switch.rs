//! The kill switch: nothing is enforced but memory, loudly, and over a restart of the manager.

use weir_nodemgr::control::Client;
use weir_nodemgr::control::history::AskEvents;
use weir_nodemgr::control::schema::CreateTenant;
use weir_nodemgr::{Manager, Place};

use crate::stage::{Actor, Stage, options, wish};

fn limited() -> CreateTenant {
    let copy_limit_bytes_per_s = 1 << 30;
    CreateTenant { limit_permille: Some(600), copy_limit_bytes_per_s, ..wish("train", 60) }
}

#[test]
fn off_takes_every_limit_but_that_of_memory_away_and_on_brings_them_back() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(limited()).unwrap();
    let mut process = Actor::ready(&created);
    let grant = || {
        let gpu = stage.tenant("train").unwrap().gpus[0].clone();
        (gpu.rate_ppm, gpu.in_flight_cap_ns > 0, gpu.copy_limit_bytes_per_s, gpu.memory_limit_bytes)
    };
    let before = grant();
    assert_eq!(before, (600_000, true, 1 << 30, 10 << 30));
    let done = stage.client().switch(true).unwrap();
    assert_eq!((done.off, done.was_off, done.tenants), (true, false, 1));
    assert_eq!(grant(), (1_000_000, false, 0, 10 << 30));
    assert_eq!(process.ask(&format!("hold {}", 11u64 << 30)), "out of memory", "memory is not of time");
    assert!(stage.stats().node.off && stage.tenant("train").unwrap().state == "off");
    assert!(stage.client().switch(false).unwrap().was_off);
    assert_eq!(grant(), before);
    let events = stage.client().events(AskEvents::default()).unwrap().events;
    let told: Vec<_> =
        events.iter().map(ToString::to_string).filter(|line| line.contains("switched")).collect();
    assert!(told.len() == 2 && told[0].contains("switched OFF by user"), "{told:?}");
}

#[test]
fn a_tenant_that_comes_while_it_is_off_is_not_limited_either() {
    let stage = Stage::new();
    stage.client().switch(true).unwrap();
    let mut run = stage.client();
    run.create(limited()).unwrap();
    stage.until("train", "its first decision", |t| t.is_some_and(|t| t.gpus[0].rate_ppm == 1_000_000));
}

#[test]
fn it_is_off_until_somebody_switches_it_on_whoever_is_the_manager() {
    let dir = tempfile::Builder::new().prefix("weir").tempdir_in("/tmp").unwrap();
    let place = Place::at(&dir.path().join("node")).unwrap();
    let is_off = || Client::connect(&place).unwrap().stats().unwrap().node.off;
    let switch = |off| Client::connect(&place).unwrap().switch(off).unwrap();
    for (before, then) in [(false, true), (true, true), (true, false), (false, false)] {
        let manager = Manager::start(options(&place)).unwrap();
        assert_eq!(is_off(), before);
        switch(then);
        drop(manager);
    }
    assert!(!place.off_mark().exists());
}
