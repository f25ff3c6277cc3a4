//! The process that reads pages: it has no rights, whoever hangs delays nobody but himself, and when it dies nothing stops.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};

use rustix::process::{Pid, Signal, kill_process};
use weir_nodemgr::config::Persistent;
use weir_nodemgr::control::TenantStats;
use weir_nodemgr::control::history::AskEvents;
use weir_nodemgr::control::schema::CreateTenant;
use weir_nodemgr::events::What;
use weir_nodemgr::latency::Health;

use crate::latency::{Server, page, promising};
use crate::stage::{Actor, Stage};

fn health(tenant: Option<&TenantStats>) -> Option<&Health> {
    Some(&tenant?.latency.as_ref()?.health)
}

fn is(wanted: Health) -> impl Fn(Option<&TenantStats>) -> bool {
    move |tenant| health(tenant) == Some(&wanted)
}

/// Failing, and what the reason begins with.
fn fails(begin: &'static str) -> impl Fn(Option<&TenantStats>) -> bool {
    move |tenant| matches!(health(tenant), Some(Health::Failing(why)) if why.starts_with(begin))
}

fn scraper(stage: &Stage) -> i32 {
    stage.stats().node.scraper.pid.expect("it runs")
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Why the process was lost, each time.
fn losses(stage: &Stage) -> Vec<String> {
    let events = stage.client().events(AskEvents::default()).unwrap().events;
    let why = |what| if let What::ScraperLost { why } = what { Some(why) } else { None };
    events.into_iter().filter_map(|event| why(event.what)).collect()
}

fn persistent(name: &str, url: &str) -> Persistent {
    let wanted = CreateTenant { name: name.into(), request_permille: Some(100), ..promising(url) };
    Persistent { wanted, owner: rustix::process::geteuid().as_raw(), at: "weir.toml:3:1".into() }
}

fn answer(mut socket: TcpStream, page: &str) {
    let _ = socket.read(&mut [0; 4096]);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", page.len());
    let _ = socket.write_all((head + page).as_bytes());
}

/// A page whose first question waits at `gate` for those of other pages, and which then answers all, or never any.
fn gated(gate: Arc<Barrier>, answers: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut sockets = listener.incoming().map_while(Result::ok);
        let mut hung = Vec::new();
        let first = sockets.next().unwrap();
        gate.wait();
        for socket in std::iter::once(first).chain(sockets) {
            if answers { answer(socket, &page(1, 0)) } else { hung.push(socket) }
        }
    });
    url
}

#[test]
fn one_page_of_three_that_hangs_delays_neither_of_the_others() {
    // Nobody is answered before all three have been asked: whoever asks one after the other has no answer in time.
    let gate = Arc::new(Barrier::new(3));
    let pages = [("first", true), ("hangs", false), ("last", true)];
    let tenants = pages.map(|(name, answers)| persistent(name, &gated(gate.clone(), answers)));
    let stage = Stage::with(|options| options.tenants = tenants.to_vec());
    stage.until("first", "an answer", is(Health::Idle));
    stage.until("last", "an answer", is(Health::Idle));
    stage.until("hangs", "the end of patience", fails("timeout"));
    let events = stage.client().events(AskEvents::default()).unwrap().events;
    let failed = events.iter().filter(|event| matches!(event.what, What::LatencySource { failing: Some(_) }));
    let failed: Vec<_> = failed.map(|event| event.tenant.as_deref().unwrap()).collect();
    assert_eq!(failed, ["hangs"]);
    assert_eq!(losses(&stage), [""; 0]);
}

/// The inode of the socket of this machine that is bound to `local` and connected to `remote`.
fn inode(local: SocketAddr, remote: SocketAddr) -> String {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let shown = |address: SocketAddr| match address {
        SocketAddr::V4(address) => {
            format!("{:08X}:{:04X}", u32::from_le_bytes(address.ip().octets()), address.port())
        }
        SocketAddr::V6(_) => panic!("{address}"),
    };
    let ends = [shown(local), shown(remote)];
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let row = rows.into_iter().find(|row| row[1..3] == ends).expect("it is connected");
    row[9].to_owned()
}

/// Whether the process has this socket open.
fn has_socket(pid: i32, inode: &str) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let mut links = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.any(|link| link.to_str() == Some(&format!("socket:[{inode}]")))
}

#[test]
fn pages_are_read_by_a_process_without_rights_and_the_manager_connects_to_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let stage = Stage::with(|options| options.tenants = vec![persistent("serve", &url)]);
    let (socket, from) = listener.accept().unwrap();
    let scraper = scraper(&stage);
    let inode = inode(from, socket.local_addr().unwrap());
    assert!(has_socket(scraper, &inode), "it is the scraper's connection");
    assert!(!has_socket(std::process::id().cast_signed(), &inode), "and not the manager's");
    let status = std::fs::read_to_string(format!("/proc/{scraper}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((field("NoNewPrivs:"), field("CapEff:")), (vec!["1".into()], vec!["0".repeat(16)]));
    if rustix::process::geteuid().is_root() {
        assert_eq!((field("Uid:"), field("Groups:")), (vec!["65534".to_owned(); 4], Vec::<String>::new()));
    }
    answer(socket, &page(1, 0));
    stage.until("serve", "an answer", is(Health::Idle));
}

#[test]
fn one_that_is_killed_is_replaced_and_the_latencies_go_on() {
    let (stage, server) = (Stage::new(), Server::start());
    server.say(page(1_000, 0));
    let mut run = stage.client();
    let created = run.create(promising(&server.url)).unwrap();
    let mut process = Actor::ready(&created);
    stage.until("serve", "a first page", is(Health::Idle));
    let first = scraper(&stage);
    signal(first, Signal::KILL);
    server.say(page(1_000, 100));
    stage.until("serve", "requests since the last page of the one that was killed", is(Health::Told));
    let node = stage.stats().node.scraper;
    assert!(node.pid.is_some_and(|pid| pid != first) && node.lost == 1, "{node:?}");
    assert_eq!(losses(&stage), ["it has ended"]);
    assert_eq!(process.ask("launch"), "launched");
    drop((run, process));
    stage.until("serve", "the end of the only tenant that has pages", |tenant| tenant.is_none());
    stage.until("serve", "the end of the process that reads them", |_| {
        stage.stats().node.scraper.pid.is_none()
    });
}

#[test]
fn one_that_hangs_is_replaced_and_meanwhile_latencies_are_stale() {
    let (stage, server) = (Stage::new(), Server::start());
    server.say(page(1, 0));
    let mut run = stage.client();
    run.create(promising(&server.url)).unwrap();
    stage.until("serve", "a first page", is(Health::Idle));
    let first = scraper(&stage);
    signal(first, Signal::STOP);
    stage.until("serve", "what nobody reads", fails("stale: "));
    assert_eq!(stage.tenant("serve").unwrap().latency.unwrap().recent_ns, None);
    stage.until("serve", "an answer to another one", is(Health::Idle));
    assert_eq!(losses(&stage), ["it does not answer"]);
    assert!(
        rustix::process::test_kill_process(Pid::from_raw(first).unwrap()).is_err(),
        "the first has ended"
    );
}

#[test]
fn without_the_process_sources_are_stale_and_all_else_goes_on() {
    let stage = Stage::with(|options| options.scraper = "/no/such/weir".into());
    let mut run = stage.client();
    let created = run.create(promising("http://127.0.0.1:1/")).unwrap();
    let mut process = Actor::ready(&created);
    stage.until("serve", "what nobody reads", fails("stale: "));
    assert_eq!(process.ask("launch"), "launched");
    let lost = losses(&stage);
    assert!(lost[0].starts_with("it cannot be started: No such file"), "{lost:?}");
    assert!(lost.len() < 10, "the pauses in between grow: {}", lost.len());
}
