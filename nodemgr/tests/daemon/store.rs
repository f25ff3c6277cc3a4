//! A supervisor that keeps the tenants' pages, by systemd's protocol (sd_notify(3), FDSTORE), for the next manager.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use weir_nodemgr::control::schema::CreateTenant;
use weir_nodemgr::notify::Supervisor;

use crate::restart::{one_process, train};
use crate::stage::{DEADLINE, Stage, wish};

/// Stands in for systemd.
struct Keeper {
    socket: UnixDatagram,
    kept: Vec<(String, OwnedFd)>,
}

impl Keeper {
    fn at(place: &Path) -> Self {
        let socket = UnixDatagram::bind(place).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { socket, kept: Vec::new() }
    }

    /// Hears one thing and does what it says.
    fn hear(&mut self) -> String {
        let (mut text, mut space) = ([0; 64], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))]);
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut text)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let heard = rustix::net::recvmsg(&self.socket, parts, &mut ancillary, flags).unwrap();
        let text = String::from_utf8_lossy(&text[..heard.bytes]).into_owned();
        let (what, name) = text.split_once("\nFDNAME=").unwrap_or((&text, ""));
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        match what {
            "FDSTORE=1" => self.kept.extend(fds.flatten().map(|fd| (name.to_owned(), fd))),
            "FDSTOREREMOVE=1" => self.kept.retain(|(kept, _)| kept != name),
            "READY=1" | "WATCHDOG=1" => {}
            _ => panic!("systemd does not know {what}"),
        }
        what.to_owned()
    }

    /// Hands over copies of what it has, as at the start of a service.
    fn hand_over(&self) -> Vec<(String, OwnedFd)> {
        self.kept.iter().map(|(name, fd)| (name.clone(), fd.try_clone().unwrap())).collect()
    }
}

/// Starts the daemon as systemd does (sd_listen_fds(3)): with what was kept from the third descriptor on, and its own number.
fn start_daemon(stage: &Stage, place: &Path, kept: &[(String, OwnedFd)]) -> Child {
    let own = std::process::id();
    let open = |(at, (_, fd)): (usize, &(String, OwnedFd))| {
        format!("exec {}<>/proc/{own}/fd/{}\n", at + 3, fd.as_raw_fd())
    };
    let opened: String = kept.iter().enumerate().map(open).collect();
    let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{opened}LISTEN_PID=$$ exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_weir")]);
    shell.arg("--dir").arg(stage.place.base()).arg("node").env("NOTIFY_SOCKET", place);
    shell.env("LISTEN_FDS", kept.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
    shell.spawn().unwrap()
}

/// A manager under a supervisor that keeps what it is given.
fn kept() -> (Stage, Keeper, Arc<Supervisor>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("notify");
    let keeper = Keeper::at(&place);
    let supervisor = Arc::new(Supervisor::at(place.to_str().unwrap(), None));
    let stage = Stage::with(|options| options.supervisor = supervisor.clone());
    (stage, keeper, supervisor, dir)
}

#[test]
fn what_the_last_process_did_stays_counted_although_it_died_while_no_manager_was_there() {
    let (mut stage, mut keeper, supervisor, _dir) = kept();
    let (_run, _created, mut process) = one_process(&stage);
    assert_eq!(keeper.hear(), "FDSTORE=1");
    stage.stop();
    process.kill();
    process.wait();
    stage.restart_with(|options| {
        (options.supervisor, options.kept) = (supervisor.clone(), keeper.hand_over());
    });
    let tenant = train(&stage);
    assert_eq!((tenant.pids.as_slice(), tenant.processes_ever), ([].as_slice(), 1));
    assert_eq!((tenant.gpus[0].memory_held_bytes, tenant.gpus[0].total.launches), (0, 1));
}

#[test]
fn the_daemon_has_what_its_supervisor_hands_over_and_gives_it_back_to_be_kept() {
    let (mut stage, mut keeper, _supervisor, dir) = kept();
    let (_run, _created, mut process) = one_process(&stage);
    keeper.hear();
    stage.stop();
    process.kill();
    process.wait();
    // It finds no GPU here: that of its journal will do.
    let handed = std::mem::take(&mut keeper.kept);
    let mut daemon = start_daemon(&stage, &dir.path().join("notify"), &handed);
    let heard = [keeper.hear(), keeper.hear()];
    assert!(["READY=1", "FDSTORE=1"].iter().all(|what| heard.iter().any(|heard| heard == what)), "{heard:?}");
    let tenant = train(&stage);
    assert_eq!((tenant.pids.as_slice(), tenant.gpus[0].total.launches), ([].as_slice(), 1));
    assert_eq!(keeper.kept.len(), 4);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn the_pages_of_a_tenant_that_has_ended_are_kept_no_longer() {
    let (stage, mut keeper, _supervisor, _dir) = kept();
    let mut run = stage.client();
    run.create(wish("train", 60)).unwrap();
    assert_eq!((keeper.hear().as_str(), keeper.kept.len()), ("FDSTORE=1", 4), "all four pages");
    drop(run);
    assert_eq!((keeper.hear().as_str(), keeper.kept.len()), ("FDSTOREREMOVE=1", 0));
}

#[test]
fn what_was_kept_of_a_tenant_that_nobody_knows_is_given_up() {
    let (mut stage, mut keeper, supervisor, _dir) = kept();
    let mut run = stage.client();
    run.create(wish("train", 60)).unwrap();
    keeper.hear();
    stage.stop();
    std::fs::remove_file(stage.place.base().join("node.journal")).unwrap();
    stage.restart_with(|options| {
        (options.supervisor, options.kept) = (supervisor.clone(), keeper.hand_over());
    });
    assert_eq!((keeper.hear().as_str(), keeper.kept.len()), ("FDSTOREREMOVE=1", 0));
    assert!(stage.stats().tenants.is_empty());
}

#[test]
fn a_supervisor_that_does_not_listen_holds_nobody_up_and_hears_it_later() {
    let (stage, mut keeper, _supervisor, _dir) = kept();
    let mut run = stage.client();
    for n in 0..64 {
        let wanted = CreateTenant { memory_bytes: Some(1 << 20), ..wish(&format!("t{n}"), 1) };
        run.create(wanted).unwrap();
    }
    assert_eq!(stage.stats().tenants.len(), 64, "more than the kernel keeps for a socket that nobody reads");
    (0..64).for_each(|_| assert_eq!(keeper.hear(), "FDSTORE=1"));
    assert_eq!(keeper.kept.len(), 64 * 4);
}
