//! `--rate-from`: programs that print nothing, and tell their rate on a page of Prometheus text.

use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};

use weir_cluster::profile::Profile;
use weir_protocol::units::SmShare;
use weir_tests::cluster::free_port;
use weir_tests::node::Node;
use weir_tests::program::Program;
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

use super::{MACHINE, assert_fails, host_and_gpu, profiler};

/// A page that is a program's from before its start: whoever asks early is answered as soon as the program can.
struct Page {
    socket: OwnedFd,
    url: String,
}

impl Page {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/metrics", listener.local_addr().expect("its address"));
        let socket = rustix::io::dup(&listener).expect("another descriptor"); // this one is inherited
        Self { socket, url }
    }

    /// A program that serves it.
    fn served_by(&self, profiler: Program, host_ms: &str) -> Program {
        host_and_gpu(profiler, host_ms).arg(self.socket.as_raw_fd().to_string())
    }
}

/// A kernel of 6 ms after 9 ms of the host: with 40 % of the GPU it does all 65 steps a second, with 35 % only 58. 70 % of them, 45,
/// need 30 %, with which it does 50. A page tells whole steps only: so short that one of them is little of a window.
#[test]
fn the_growth_of_a_counter_on_a_page_is_the_rate_by_which_the_least_shares_are_found() {
    let gpu = SimGpu::new("linger_ms = 3_600_000\n[[kernel]]\nname = \"*\"\ntime_us = 6000\n");
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let file = gpu.dir().join("counted.toml");
    let found = wait::in_time(|| {
        let page = Page::open();
        let flags = ["--keep", "70%", "--confidence", "99%", "--settle", "300ms", "--window", "1s"];
        let profiler = profiler(&gpu, &node, &flags).arg("--out").arg(&file);
        page.served_by(profiler.args(["--rate-from", &page.url, "steps_total"]), "9").run().well();
        Profile::read(&file).unwrap()
    });
    assert_eq!((found.request, found.limit), (SmShare::percent(30), SmShare::percent(40)));
    assert!((found.throughput.alone - 65.0).abs() < 3.0, "{:?}", found.throughput);
    assert!((found.throughput.at_request - 50.0).abs() < 3.0, "{:?}", found.throughput);
    assert!((found.throughput.gpu_ms.unwrap() - 6.0).abs() < 0.6, "{:?}", found.throughput);
    assert!(node.stats().tenants.is_empty(), "the program was ended");
}

/// What never changes is kept by the least share that there is.
#[test]
fn a_metric_of_a_page_that_is_no_counter_is_the_rate_by_its_value() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let (page, file) = (Page::open(), gpu.dir().join("gauged.toml"));
    let flags = ["--rate-from", &page.url, "samples_per_second", "--out", file.to_str().unwrap()];
    page.served_by(profiler(&gpu, &node, &flags), "5").run().well();
    let found = Profile::read(&file).unwrap();
    assert_eq!((found.throughput.alone, found.throughput.at_request), (250.0, 250.0));
    assert_eq!(found.interference, None, "there was no neighbour");
    assert_eq!((found.request, found.limit), (SmShare::percent(5), SmShare::percent(5)));
}

/// It says a line every 11 ms, and answers after four seconds: whoever asks is told nothing for two of them.
#[test]
fn a_page_that_comes_up_late_is_waited_for_and_read_whatever_else_the_program_says() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let (page, file) = (Page::open(), gpu.dir().join("late.toml"));
    let flags = ["--rate-from", &page.url, "samples_per_second", "--out", file.to_str().unwrap()];
    page.served_by(profiler(&gpu, &node, &flags), "5").arg("4").run().well();
    assert_eq!(Profile::read(&file).unwrap().throughput.alone, 250.0);
}

#[test]
fn a_page_that_nobody_serves_is_told_and_the_program_is_ended() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port"); // hears, and never answers
    let told = |url: &str, why: &str| {
        let profiler = profiler(&gpu, &node, &["--rate-from", url, "steps_total", "--patience", "4s"]);
        let finished = host_and_gpu(profiler, "5").run();
        assert_fails(&finished, 1, &format!("`{url}` cannot be read: "), "--rate-from");
        assert!(finished.stderr.contains(why), "{finished:?}");
    };
    told(&format!("http://127.0.0.1:{}/metrics", free_port()), "Connection refused");
    told(&format!("http://{}/metrics", silent.local_addr().expect("its address")), "timeout");
    assert!(node.stats().tenants.is_empty(), "the programs were ended");
}

#[test]
fn a_metric_that_the_page_lacks_or_that_does_not_grow_is_told() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let (page, file) = (Page::open(), gpu.dir().join("never.toml"));
    let told = |metric: &str, message: &str, help: &str| {
        let flags = ["--rate-from", &page.url, metric, "--patience", "3s", "--out", file.to_str().unwrap()];
        let finished = page.served_by(profiler(&gpu, &node, &flags), "5").run();
        assert_fails(&finished, 1, message, help);
        assert!(finished.stderr.contains(&page.url), "{finished:?}");
    };
    told("samples_total", "has no metric `samples_total`", "the metric's whole name");
    told("steps", "has no metric `steps`", "the metric's whole name");
    told("epochs_total", "no rate within 3 s: `epochs_total` at ", "a counter of work that is done");
    assert!(node.stats().tenants.is_empty() && !file.exists(), "the programs were ended");
}

#[test]
fn a_page_without_a_metric_or_beside_a_pattern_is_refused_before_anything_runs() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let refused = |flags: &[&str], message: &str| {
        let finished = profiler(&gpu, &node, flags).args(["--", "sleep", "1000"]).run();
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert!(finished.stderr.contains(message) && finished.stderr.contains("--help"), "{finished:?}");
    };
    refused(
        &["--rate-from", "http://127.0.0.1:1/metrics"],
        "2 values required for '--rate-from <URL> <METRIC>'",
    );
    let both = ["--rate-from", "http://127.0.0.1:1/metrics", "steps_total", "--rate", "steps: ([0-9]+)"];
    let finished =
        profiler(&gpu, &node, &["--rate-from", "metrics", "steps_total", "--", "sleep", "9"]).run();
    assert_fails(&finished, 2, "`metrics` is no URL of a page", "http://127.0.0.1:8000/metrics");
    refused(&both, "'--rate-from <URL> <METRIC>' cannot be used with '--rate <PATTERN>'");
}
