//! Peers that do what no `libweir.so` does. Nobody else may notice.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::stage::{Actor, DEADLINE, Stage, wish};

fn connect(path: &Path) -> UnixStream {
    let socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket
}

/// Whether the manager hangs up, whatever it says before.
fn hung_up_on(mut socket: UnixStream) -> bool {
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn whoever_does_not_say_hello_within_a_second_is_shut_out_and_honest_processes_get_in_meanwhile() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let door = created.dir.join("tenant.sock");
    let silent: Vec<_> = (0..50).map(|_| connect(&door)).collect();
    let mut slow = connect(&door);
    slow.write_all(&[9]).unwrap();
    let _honest = Actor::ready(&created);
    assert!(silent.into_iter().chain([slow]).all(hung_up_on));
}

#[test]
fn nonsense_at_a_tenants_door_ends_that_connection_only() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let honest = Actor::ready(&created);
    let long = [u32::MAX.to_le_bytes().as_slice(), b"x"].concat();
    let cases: [&[u8]; 4] = [&long, &[0xff; 64], &[3, 0, 0, 0, 0xff, 0xff, 0xff], b"GET / HTTP/1.1\r\n\r\n"];
    for bytes in cases {
        let mut socket = connect(&created.dir.join("tenant.sock"));
        let _ = socket.write_all(bytes);
        assert!(hung_up_on(socket), "{bytes:?}");
    }
    assert_eq!(stage.tenant("train").unwrap().pids, [honest.pid()]);
}

#[test]
fn another_protocol_is_refused_with_both_versions_named() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let socket = connect(&created.dir.join("tenant.sock"));
    let hello = weir_protocol::message::Hello {
        protocol: 77,
        build: "9.9.9".into(),
        driver: String::new(),
        slot: None,
    };
    weir_protocol::transport::send(&socket, &hello, &[]).unwrap();
    let (reply, _) = weir_protocol::transport::receive::<weir_protocol::message::Reply>(&socket).unwrap();
    let weir_protocol::message::Reply::Refused { reason } = reply else { panic!("welcomed") };
    let ours = format!("speaks {}", weir_protocol::PROTOCOL_VERSION);
    assert!(reason.contains("protocol 77") && reason.contains(&ours), "{reason}");
}

/// A user who owns no tenant.
const NOBODY: libc::uid_t = 65_534;

#[test]
fn a_stranger_who_says_that_he_has_a_slot_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: changing the user needs root");
    }
    let stage = Stage::new();
    std::fs::set_permissions(stage.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let place = created.dir.join("tenant.sock");
    let stranger = std::thread::spawn(move || {
        // SAFETY: takes numbers only. The bare system call changes this thread alone.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(changed, 0);
        let socket = connect(&place);
        let hello = weir_protocol::message::Hello {
            protocol: weir_protocol::PROTOCOL_VERSION,
            build: String::new(),
            driver: String::new(),
            slot: Some(0),
        };
        weir_protocol::transport::send(&socket, &hello, &[]).unwrap();
        weir_protocol::transport::receive::<weir_protocol::message::Reply>(&socket).unwrap().0
    });
    let weir_protocol::message::Reply::Refused { reason } = stranger.join().unwrap() else {
        panic!("welcomed")
    };
    assert!(reason.contains("does not own"), "{reason}");
    assert_eq!(stage.tenant("train").unwrap().state, "starting", "and nothing is to be seen of him");
    Actor::ready(&created);
}

#[test]
fn descriptors_that_a_peer_sends_are_not_taken() {
    use std::os::fd::AsFd;
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let socket = connect(&created.dir.join("tenant.sock"));
    let hello = weir_protocol::message::Hello {
        protocol: weir_protocol::PROTOCOL_VERSION,
        build: String::new(),
        driver: String::new(),
        slot: None,
    };
    let before = count();
    weir_protocol::transport::send(&socket, &hello, &[file.as_fd(); 40]).unwrap();
    let (_reply, fds) = weir_protocol::transport::receive::<weir_protocol::message::Reply>(&socket).unwrap();
    // Its own end of the connection's pidfd, and the four pages that came to us; the forty are nowhere.
    assert!(count() <= before + fds.len() + 5, "{} descriptors became {}", before, count());
}

#[test]
fn nonsense_on_the_control_socket_is_answered_and_changes_nothing() {
    let stage = Stage::new();
    let mut honest = stage.client();
    honest.create(wish("train", 60)).unwrap();
    let before = stage.tenant("train").unwrap().budget;
    let change = |what: &str| format!("{{\"do\":\"set\",\"tenant\":\"train\",{what}}}");
    for (line, code) in [
        ("{}".into(), "W0132"),
        ("null".into(), "W0132"),
        ("[".into(), "W0132"),
        ("{\"do\":\"fly\"}".into(), "W0132"),
        (change("\"nonsense\":1"), "W0132"),
        (change("\"request_permille\":-1"), "W0132"),
        (change("\"request_permille\":300.5"), "W0132"),
        (change("\"request_permille\":65536"), "W0132"),
        (change("\"request_permille\":1001"), "W0101"),
        (change("\"memory_bytes\":-1"), "W0132"),
        (change("\"memory_bytes\":0"), "W0107"),
        ("\u{0}\u{0}".into(), "W0132"),
    ] {
        let mut socket = connect(&stage.place.control());
        writeln!(socket, "{line}").unwrap();
        let mut answer = [0; 4096];
        let length = socket.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(answer.contains("\"is\":\"error\"") && answer.contains(code), "{line}: {answer}");
    }
    assert_eq!(stage.tenant("train").unwrap().budget, before);
    assert_eq!(stage.stats().tenants.len(), 1);
}

#[test]
fn a_line_without_end_is_cut_off() {
    let stage = Stage::new();
    let mut socket = connect(&stage.place.control());
    let chunk = vec![b'x'; 128 << 10];
    let _ = socket.write_all(&chunk);
    assert!(hung_up_on(socket));
    assert!(stage.client().stats().is_ok());
}

#[test]
fn a_tenant_that_fills_its_pages_with_nonsense_harms_only_its_own_figures() {
    use std::sync::atomic::Ordering;
    let stage = Stage::new();
    let (mut one, mut two) = (stage.client(), stage.client());
    let created = one.create(wish("liar", 40)).unwrap();
    let honest_tenant = two.create(wish("honest", 40)).unwrap();
    let mut honest = Actor::ready(&honest_tenant);
    honest.ask("hold 777");
    let socket = connect(&created.dir.join("tenant.sock"));
    let hello = weir_protocol::message::Hello {
        protocol: weir_protocol::PROTOCOL_VERSION,
        build: "\u{1b}[2J".into(),
        driver: String::new(),
        slot: None,
    };
    weir_protocol::transport::send(&socket, &hello, &[]).unwrap();
    let (_, fds) = weir_protocol::transport::receive::<weir_protocol::message::Reply>(&socket).unwrap();
    let access = weir_protocol::mapping::Access::ReadWrite;
    let usage =
        weir_protocol::mapping::Mapped::<weir_protocol::pages::UsagePage>::open(&fds[2], access).unwrap();
    for slot in &usage.slots {
        slot.held_bytes.store(u64::MAX, Ordering::SeqCst);
        slot.submitted_ns.store(u64::MAX - 5, Ordering::SeqCst);
        slot.state.store(99, Ordering::SeqCst);
        slot.lanes.iter().for_each(|lane| lane.charged_ns.store(u64::MAX, Ordering::SeqCst));
    }
    let liar = stage.tenant("liar").unwrap();
    assert_eq!((liar.state.as_str(), liar.gpus[0].memory_held_bytes), ("degraded", u64::MAX));
    assert_eq!(stage.tenant("honest").unwrap().gpus[0].memory_held_bytes, 777);
}

/// Connections of a flood, as in faults A.5, F28, and how many of them are open at a time.
const FLOOD: usize = 10_000;
const OPEN: usize = 200;

#[test]
fn a_flood_of_half_open_connections_at_one_door_keeps_nobody_out_at_another() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.client(), stage.client());
    let flooded = one.create(wish("flooded", 40)).unwrap().dir.join("tenant.sock");
    let honest = two.create(wish("honest", 40)).unwrap();
    let flood = std::thread::spawn(move || {
        let mut open = std::collections::VecDeque::new();
        for _ in 0..FLOOD {
            open.push_back(connect(&flooded));
            if open.len() > OPEN {
                open.pop_front();
            }
        }
    });
    let actors: Vec<_> = (0..16).map(|_| Actor::ready(&honest)).collect();
    flood.join().unwrap();
    let pids: Vec<_> = actors.iter().map(Actor::pid).collect();
    assert_eq!(stage.tenant("honest").unwrap().pids, pids);
    assert!(stage.tenant("flooded").unwrap().pids.is_empty());
}
