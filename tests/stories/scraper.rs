//! Pages of latencies and signals are read by a process of their own, beside a real daemon.

use std::collections::BTreeSet;
use std::net::TcpListener;

use weir_tests::node::Node;
use weir_tests::program;
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

/// Inodes of all network sockets of this machine.
fn network_sockets() -> BTreeSet<String> {
    let tables = ["tcp", "tcp6", "udp", "udp6"].map(|table| format!("/proc/net/{table}"));
    let rows = tables.iter().filter_map(|table| std::fs::read_to_string(table).ok());
    rows.flat_map(|rows| inodes(&rows)).collect()
}

fn inodes(rows: &str) -> Vec<String> {
    rows.lines().skip(1).filter_map(|row| row.split_whitespace().nth(9)).map(str::to_owned).collect()
}

/// How many of them the process has open.
fn connections(pid: i32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let known = network_sockets();
    let links = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    let inode =
        |link: &std::path::Path| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    links.filter(|link| inode(link).is_some_and(|inode| known.contains(&inode))).count()
}

#[test]
fn the_daemon_has_no_network_connection_and_the_process_that_has_dies_with_it() {
    let gpu = SimGpu::new("");
    let page = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = page.local_addr().expect("it is bound");
    let config = format!("[signals.price]\nfrom = \"http://{url}/\"\nfull = 1.0\nnone = 2.0\nevery_s = 1\n");
    let mut node = Node::start(&gpu, &config);
    let (_unanswered, _) = page.accept().expect("somebody asks");
    let scraper = node.stats().node.scraper.pid.expect("it runs");
    program::signal(scraper, libc::SIGSTOP); // keeps its connection, and hears nothing of its manager's end
    assert_eq!((connections(scraper), connections(node.pid())), (1, 0));
    node.kill();
    let lives = || std::path::Path::new(&format!("/proc/{scraper}/fd/0")).is_symlink();
    wait::until("the end of the process that reads pages", || (!lives()).then_some(()));
}
