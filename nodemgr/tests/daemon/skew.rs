//! Two versions that meet: a process and a manager, or pages and the next manager. Either all of it works, or both versions
//! are named; nothing is ever read as what it is not (faults A.5, F34).

use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use weir_protocol::message::{Hello, Reply};
use weir_protocol::{PROTOCOL_VERSION, codec, transport};

use crate::restart::{one_process, train};
use crate::stage::{Actor, DEADLINE, Stage, wish};

/// The two before ours and the two after it.
const OTHERS: [u32; 4] =
    [PROTOCOL_VERSION - 2, PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 2];

/// Hellos of a protocol, each laid out in another way: as ours, without its last field as an older one, with more as a newer
/// one, and with what no hello of ours could hold.
fn hellos(protocol: u32) -> Vec<Vec<u8>> {
    let (build, driver) = ("9.9.9".to_owned(), "libcuda.so.1".to_owned());
    let ours = Hello { protocol, build: build.clone(), driver: driver.clone(), slot: None };
    let known = Hello { slot: Some(0), ..ours.clone() };
    vec![
        codec::encode(&ours).unwrap(),
        codec::encode(&known).unwrap(),
        codec::encode(&(protocol, &build, &driver)).unwrap(),
        codec::encode(&(protocol, &build, &driver, Some(0u32), "more", [7u64; 9])).unwrap(),
        codec::encode(&(protocol, [u64::MAX; 20])).unwrap(),
    ]
}

/// What the manager answers to a hello.
fn answer(door: &std::path::Path, hello: &[u8]) -> Reply {
    use std::io::Write;
    let mut socket = UnixStream::connect(door).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = u32::try_from(hello.len()).unwrap().to_le_bytes();
    socket.write_all(&[&length[..], hello].concat()).unwrap();
    transport::receive::<Reply>(&socket).unwrap().0
}

#[test]
fn a_process_of_another_version_is_refused_with_both_named_however_its_hello_is_laid_out() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let honest = Actor::ready(&created);
    for protocol in OTHERS {
        for (layout, hello) in hellos(protocol).iter().enumerate() {
            let Reply::Refused { reason } = answer(&created.dir.join("tenant.sock"), hello) else {
                panic!("protocol {protocol}, layout {layout}: let in")
            };
            let named = [format!("protocol {protocol},"), format!("speaks {PROTOCOL_VERSION}:")];
            assert!(named.iter().all(|version| reason.contains(version)), "layout {layout}: {reason}");
        }
    }
    let tenant = train(&stage);
    assert_eq!((tenant.pids.as_slice(), tenant.processes_ever), ([honest.pid()].as_slice(), 1));
    assert!(tenant.unreached_pids.is_empty(), "nobody was taken for one who comes back");
}

/// Makes all pages of a process say that they are of this version, as a manager of that one would have.
fn date(pid: i32, version: u32) {
    let mut dated = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(name) = std::fs::read_link(&path) else { continue };
        if name.to_string_lossy().starts_with("/memfd:weir-") {
            let page = std::fs::File::options().write(true).open(&path).unwrap();
            page.write_all_at(&version.to_ne_bytes(), 0).unwrap(); // the first word of each
            dated += 1;
        }
    }
    assert_eq!(dated, weir_protocol::message::PAGES);
}

#[test]
fn pages_of_another_version_are_not_read_their_budget_stays_taken_and_who_made_them_has_them_back() {
    let mut stage = Stage::new();
    let (_run, created, mut process) = one_process(&stage);
    for version in OTHERS {
        stage.stop();
        date(process.pid(), version);
        stage.restart();
        let tenant = train(&stage);
        assert_eq!(
            (tenant.state.as_str(), tenant.pids.as_slice()),
            ("unreached", [].as_slice()),
            "{version}"
        );
        assert_eq!(tenant.unreached_pids, [process.pid()]);
        assert_eq!(
            stage.client().create(wish("other", 50)).unwrap_err().code,
            "W0104",
            "its share is its own"
        );
        assert_eq!(process.ask("hold 20000000000"), "out of memory", "it keeps to its limits");
        let (_newcomer, first) = Actor::enter(&created);
        assert!(first.contains("could not be taken over"), "{first}");
    }
    stage.stop();
    date(process.pid(), PROTOCOL_VERSION);
    stage.restart();
    let tenant = train(&stage);
    assert_eq!((tenant.pids.as_slice(), tenant.processes_ever), ([process.pid()].as_slice(), 1));
    assert_eq!((tenant.gpus[0].memory_held_bytes, tenant.gpus[0].total.launches), (1_000_000, 1));
    assert_eq!(process.ask("back"), "rejoined");
}

#[test]
fn when_the_last_process_with_pages_of_another_version_has_gone_the_tenants_new_pages_are_the_ones_that_last()
{
    let mut stage = Stage::new();
    let (_run, created, mut process) = one_process(&stage);
    stage.stop();
    date(process.pid(), PROTOCOL_VERSION + 1);
    stage.restart();
    process.kill();
    stage.until("train", "its end", |tenant| tenant.is_some_and(|tenant| tenant.unreached_pids.is_empty()));
    let mut next = Actor::ready(&created);
    assert_eq!(next.ask("hold 777"), "held");
    stage.restart();
    let tenant = train(&stage);
    assert_eq!((tenant.pids.as_slice(), tenant.gpus[0].memory_held_bytes), ([next.pid()].as_slice(), 777));
}
