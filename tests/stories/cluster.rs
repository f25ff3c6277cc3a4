//! `weir-cluster serve` with real processes: two nodes, a service that wakes, grows, shrinks and ends, a controller that is
//! killed in the middle, a node that is drained, one that is far away and is silent for a while, instances that die and that are
//! parked. No request fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_cluster::control;
use weir_cluster::control::config::Config;
use weir_cluster::control::measure::Watch;
use weir_protocol::units::Nanos;
use weir_tests::cluster::{Askers, Cluster, KERNELS, PRICED, free_port, node_here, node_row};
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

/// Two instances at most.
const TWO: &str = "ceiling = 2\n";

fn on_both(gpus: &[SimGpu; 2], nodes: &[Node<'_>; 2], request: &str) -> Cluster {
    let rows = [0, 1].map(|at| node_here(at, &gpus[at], &nodes[at]));
    Cluster::start(&gpus[0].dist().weir(), &rows, request, TWO)
}

fn tenants(node: &Node<'_>) -> usize {
    node.stats().tenants.len()
}

#[test]
fn a_service_wakes_grows_shrinks_and_ends_and_a_killed_controller_fails_no_request() {
    let gpus = [SimGpu::new(KERNELS), SimGpu::new(KERNELS)];
    let nodes = [Node::start(&gpus[0], PRICED), Node::start(&gpus[1], PRICED)];
    let mut cluster = on_both(&gpus, &nodes, "60%");
    cluster.wait_for("", 0);
    let first = cluster.get("/web/x").unwrap();
    assert!(first.starts_with("HTTP/1.1 200"), "from zero: {first}\n{}", cluster.log());
    let askers = Askers::start(&cluster, 6);
    cluster.wait_for("ready", 2);

    cluster.kill();
    askers.wait_for(20, "requests that are answered without a controller");
    cluster.start_again();
    cluster.wait_for("ready", 2);
    let started: usize = nodes.iter().map(tenants).sum();
    assert_eq!(started, 2, "nothing was started twice:\n{}", cluster.log());

    let all = askers.end(&cluster) + 1;
    cluster.wait_for("", 0);
    wait::until("nodes without tenants", || nodes.iter().all(|node| tenants(node) == 0).then_some(()));
    let metrics = cluster.get("/metrics").unwrap();
    let row = format!("outcome=\"answered\"}} {all}");
    assert!(metrics.contains(&row), "{all} were answered:\n{metrics}");
}

#[test]
fn the_instances_of_a_node_that_is_drained_move_and_no_request_fails() {
    let gpus = [SimGpu::new(KERNELS), SimGpu::new(KERNELS)];
    let nodes = [Node::start(&gpus[0], PRICED), Node::start(&gpus[1], PRICED)];
    let cluster = on_both(&gpus, &nodes, "40%");
    let askers = Askers::start(&cluster, 6);
    cluster.wait_for("ready", 2);
    let drained = usize::from(tenants(&nodes[0]) == 0); // both may be on one
    let name = format!("n{drained}");
    let is_open = |standings: serde_json::Value| {
        let rows = standings["nodes"].as_array().expect("nodes").clone();
        rows.iter().find(|row| row["name"] == name.as_str()).expect("it is there")["open"] == true
    };

    assert!(!is_open(cluster.standings("drain", &[&name]).expect("an answer")));
    wait::until("a node without tenants, and two instances on the other", || {
        (tenants(&nodes[drained]) == 0 && cluster.count("ready") == Some(2)).then_some(())
    });
    assert_eq!(tenants(&nodes[1 - drained]), 2, "{}", cluster.log());
    assert!(is_open(cluster.standings("drain", &[&name, "--off"]).expect("an answer")));
    assert!(askers.end(&cluster) > 0);
}

/// `weir web` of a node that is far away, and what reaches its shell.
struct Far {
    dir: tempfile::TempDir,
    port: u16,
    web: Child,
}

impl Far {
    fn start(gpu: &SimGpu, node: &Node<'_>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for path in [dir.path(), node.dir()] {
            // `weir web` gives up root, and throw-away directories are closed to others.
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("its mode");
        }
        let write = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("a file");
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("its mode");
        };
        write("token", "a-token-of-a-story-that-nobody-would-guess", 0o600);
        write("ssh", "#!/bin/sh\nshift\nexec sh -c \"$*\"\n", 0o755); // what a shell far away gets: one line
        let port = free_port();
        let web = web(gpu, node.dir(), dir.path(), port);
        Self { dir, port, web }
    }

    /// The row of this node.
    fn row(&self, at: usize, gpu: &SimGpu, node: &Node<'_>) -> String {
        let reach = format!(
            "web = \"http://127.0.0.1:{}\"\ntoken_file = {:?}\nstart = [{:?}, \"far\"]\ninstances = {:?}\nweir_cluster = {:?}",
            self.port,
            self.dir.path().join("token"),
            self.dir.path().join("ssh"),
            self.dir.path().join("instances"),
            weir_tests::cluster::program(),
        );
        node_row(at, gpu, &reach, &[format!("WEIR_NODE_DIR = {:?}", node.dir())])
    }

    fn fall_silent(&mut self) {
        self.web.kill().expect("a process");
        self.web.wait().expect("a process");
    }

    fn speak_again(&mut self, gpu: &SimGpu, node: &Node<'_>) {
        self.web = web(gpu, node.dir(), self.dir.path(), self.port);
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.web.kill();
        let _ = self.web.wait();
    }
}

fn web(gpu: &SimGpu, node: &Path, dir: &Path, port: u16) -> Child {
    let mut command = Command::new(gpu.dist().weir());
    command.arg("--dir").arg(node).args(["web", &format!("--listen=127.0.0.1:{port}"), "--token-file"]);
    let mut child = command.arg(dir.join("token")).stdout(Stdio::piped()).spawn().expect("weir web starts");
    let mut line = String::new();
    let said = child.stdout.take().expect("its stdout");
    BufReader::new(said).read_line(&mut line).expect("a line");
    assert!(line.contains(&port.to_string()), "`weir web` said {line:?}");
    child
}

#[test]
fn a_node_far_away_takes_instances_over_http_and_a_shell_and_is_counted_on_again_after_a_silence() {
    let gpus = [SimGpu::new(KERNELS), SimGpu::new(KERNELS)];
    let nodes = [Node::start(&gpus[0], PRICED), Node::start(&gpus[1], PRICED)];
    let mut far = Far::start(&gpus[1], &nodes[1]);
    let rows = [node_here(0, &gpus[0], &nodes[0]), far.row(1, &gpus[1], &nodes[1])];
    let cluster = Cluster::start(&gpus[0].dist().weir(), &rows, "60%", TWO);
    let askers = Askers::start(&cluster, 6);
    cluster.wait_for("ready", 2);
    assert_eq!([tenants(&nodes[0]), tenants(&nodes[1])], [1, 1], "{}", cluster.log());

    far.fall_silent();
    cluster.wait_for("lost", 1);
    askers.wait_for(20, "requests that are answered while a node is silent");
    far.speak_again(&gpus[1], &nodes[1]);
    cluster.wait_for("ready", 2);
    assert_eq!([tenants(&nodes[0]), tenants(&nodes[1])], [1, 1], "the same: {}", cluster.log());

    askers.end(&cluster);
    cluster.wait_for("", 0);
    wait::until("nodes without tenants", || nodes.iter().all(|node| tenants(node) == 0).then_some(()));
}

#[test]
fn an_instance_that_dies_under_requests_is_replaced_and_they_are_asked_again() {
    let gpu = SimGpu::new(KERNELS);
    let node = Node::start(&gpu, PRICED);
    let cluster =
        Cluster::start(&gpu.dist().weir(), &[node_here(0, &gpu, &node)], "40%", "floor = 2\nceiling = 2\n");
    cluster.wait_for("ready", 2);
    let askers = Askers::start(&cluster, 4);
    askers.wait_for(20, "requests that are answered");

    let before = node.stats().tenants;
    let dies = &before[0];
    weir_tests::program::signal(*dies.pids.first().expect("its process"), libc::SIGKILL);
    wait::until("another instance in its place", || {
        let names: Vec<String> = node.stats().tenants.into_iter().map(|tenant| tenant.name).collect();
        (names.len() == 2 && !names.contains(&dies.name) && cluster.count("ready") == Some(2)).then_some(())
    });
    askers.wait_for(20, "requests that are answered by both");
    askers.end(&cluster);
}

#[test]
fn the_last_instance_of_an_idle_service_is_parked_and_wakes_with_the_next_request() {
    let gpu = SimGpu::new(KERNELS);
    let node = Node::start(&gpu, PRICED);
    let rows = [node_here(0, &gpu, &node)];
    let cluster = Cluster::start(&gpu.dist().weir(), &rows, "40%", "ceiling = 1\nwhen_idle = \"park\"\n");
    let answered = |what: &str| {
        let text = cluster.get("/web/x").unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{what}: {text}\n{}", cluster.log());
    };
    answered("from zero");
    let memory = || {
        let stats = node.stats().tenants.into_iter().next().expect("a tenant");
        (stats.gpus[0].memory_parked_bytes > 0, stats.state)
    };
    assert!(!memory().0);
    cluster.wait_for("parked", 1);
    wait::until("memory on the host", || (memory() == (true, "parked".to_owned())).then_some(()));
    answered("from the host's memory");
    cluster.wait_for("ready", 1);
    assert_eq!(tenants(&node), 1, "it is the same");
}

/// A connection to the gateway on which so much has been said.
fn say(cluster: &Cluster, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.port)).expect("a gateway");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a deadline");
    stream.write_all(text.as_bytes()).expect("it listens");
    stream
}

/// What is said on it until these words.
fn hear(stream: &mut TcpStream, until: &str) -> String {
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.ends_with(until) {
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {text:?}"));
        text.push(byte[0].into());
    }
    text
}

#[test]
fn an_answer_comes_as_it_is_produced_and_a_body_that_comes_slowly_takes_nobodys_place() {
    let gpu = SimGpu::new(KERNELS);
    let node = Node::start(&gpu, PRICED);
    let rows = [node_here(0, &gpu, &node)];
    let cluster = Cluster::start(&gpu.dist().weir(), &rows, "40%", "floor = 1\nceiling = 1\n");
    cluster.wait_for("ready", 1);
    // Of two requests at a time one is being streamed, and two whose bodies have not come are none of them.
    let mut stream = say(&cluster, "GET /web/stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(hear(&mut stream, "first").starts_with("HTTP/1.1 200"));
    let head = "POST /web/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 6\r\n\r\nsl";
    let mut slow = [say(&cluster, head), say(&cluster, head)];
    for _ in 0..5 {
        let text = cluster.get("/web/x").unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }
    for slow in &mut slow {
        slow.write_all(b"owly").expect("it listens");
        assert!(hear(slow, "slowly").starts_with("HTTP/1.1 200"));
    }
    cluster.get("/web/go").unwrap();
    hear(&mut stream, "last");
}

/// What a profile says of a server that has 6.25 ms of a GPU for each request.
const SERVER: &str = "version = 1\nname = \"web\"\nkind = \"inference\"\nrequest = \"30%\"\nlimit = \"60%\"\nmemory = \"2GiB\"\n\
     [throughput]\nunit = \"requests/s\"\nalone = 66.7\nat_request = 40.6\ngpu_ms = 6.25\n\
     [inference]\nbatch = 2\nslo = \"p95 < 200ms\"\nlatency_ms = 49.0\nlatency_alone_ms = 30.0\n\
     [copies]\nhost_to_device_gb_s = 0.0\ndevice_to_host_gb_s = 0.0\n\
     [stalls]\ncompute = 0.42\ncommunication = 0.0\ncopies = 0.0\nneighbour = 0.0\ngate = 0.0\nhost = 0.58\nbubble = 0.58\n\
     [measured]\ndevice = \"d\"\nsimulated = true\ndate = \"2026-11-27\"\ncommand = [\"c\"]\n\
     [[measured.probe]]\nshare = \"30%\"\nbatch = 2\nthroughput = 40.6\ndeviation = 0.1\nlatency_ms = 49.0\n\
     [[measured.probe]]\nshare = \"100%\"\nbatch = 2\nthroughput = 66.7\ndeviation = 0.1\nlatency_ms = 30.0\n";

/// Two wait behind two that are answered: by their number that is 13 ms of a GPU, for which nobody starts anything. What they say of
/// themselves is two minutes.
#[test]
fn requests_that_say_how_much_they_want_of_a_gpu_get_another_instance_where_their_number_would_not() {
    let gpu = SimGpu::new(KERNELS);
    let node = Node::start(&gpu, PRICED);
    let folder = tempfile::tempdir().expect("a directory");
    let profile = folder.path().join("web.toml");
    std::fs::write(&profile, SERVER).expect("a file");
    let service = format!("profile = {profile:?}\nfloor = 1\nceiling = 2\nwork_header = \"X-GPU-Ms\"\n");
    let rows = [node_here(0, &gpu, &node)];
    let cluster = Cluster::scaled_by("weir", &gpu.dist().weir(), &rows, &service);
    cluster.wait_for("ready", 1);
    let head = "GET /web/stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-GPU-Ms: 60000\r\n\r\n";
    let mut streams = [(); 4].map(|()| say(&cluster, head));
    cluster.wait_for("ready", 2);
    for stream in &mut streams {
        assert!(hear(stream, "first").starts_with("HTTP/1.1 200"), "all of them are being answered");
    }
    assert_eq!(tenants(&node), 2, "{}", cluster.log());
}

/// What a profile says of a program that launches all the time.
const ALWAYS_AT_WORK: &str = "version = 1\nname = \"NAME\"\nkind = \"training\"\nrequest = \"50%\"\nlimit = \"100%\"\nmemory = \"1GiB\"\n\
     [throughput]\nunit = \"steps/s\"\nalone = 10.0\nat_request = 5.0\ngpu_ms = 100.0\n\
     [copies]\nhost_to_device_gb_s = 0.0\ndevice_to_host_gb_s = 0.0\n\
     [stalls]\ncompute = 1.0\ncommunication = 0.0\ncopies = 0.0\nneighbour = 0.0\ngate = 0.0\nhost = 0.0\nbubble = 0.0\n\
     [measured]\ndevice = \"d\"\nsimulated = true\ndate = \"2026-11-27\"\ncommand = [\"c\"]\n\
     [[measured.probe]]\nshare = \"50%\"\nthroughput = 5.0\ndeviation = 0.1\n\
     [[measured.probe]]\nshare = \"100%\"\nthroughput = 10.0\ndeviation = 0.1\n";

/// Two instances that never lack work have half of a GPU each: by what their node says of their time each is twice as slow beside the other.
#[test]
fn how_much_slower_instances_are_beside_each_other_follows_from_what_their_node_says() {
    let gpu = SimGpu::new(KERNELS);
    let node = Node::start(&gpu, PRICED);
    let folder = tempfile::tempdir().expect("a directory");
    let service = |name: &str| {
        let file = format!("{name}.toml");
        std::fs::write(folder.path().join(&file), ALWAYS_AT_WORK.replace("NAME", name)).expect("a file");
        format!(
            "[[service]]\nname = {name:?}\ncommand = [\"c\"]\nready = \"runs\"\nfloor = 1\nprofile = {file:?}\n"
        )
    };
    let services = [service("one"), service("other")].concat();
    let text =
        format!("name = \"c\"\ndir = \"x\"\n[[node]]\nname = \"n\"\ndir = {:?}\n{services}", node.dir());
    let config = Config::parse(&text, &folder.path().join("cluster.toml")).expect("a configuration");
    let (fleet, reach) = (&config.fleet, &config.reach[0]);
    let api = control::node::api(reach).expect("its socket");
    let mut watch = Watch::default();
    let began = Instant::now();
    let mut look = || {
        let asked_at = Nanos(u64::try_from(began.elapsed().as_nanos()).expect("seconds"));
        let report = control::node::report(&api, fleet, "n", asked_at).expect("an answer");
        watch.look(&report, fleet, |_| true)
    };
    let budget = |name| Budget { name, request: "50%", limit: "100%", memory: "1GiB" };
    let start = |name| Looping::start(Program::under_weir(&gpu, Some(&node), budget(name), crate::LOOP));
    let both = ["c.one.1", "c.other.2"].map(start);
    let work = |name| node.tenant(name).expect("it is there").gpus[0].total.charged_ns;
    wait::until("prices that are known", || {
        ["c.one.1", "c.other.2"].iter().all(|name| work(name) > 300_000_000).then_some(())
    });
    assert_eq!(look(), [], "a window begins");
    let measured =
        wait::until("a window that is over", || Some(look()).filter(|measured| !measured.is_empty()));
    assert_eq!(measured.len(), 2, "{measured:?}");
    assert!(measured.iter().all(|one| (one.slowdown - 2.0).abs() < 0.2), "{measured:?}");
    both.into_iter().for_each(|looping| drop(looping.finish().well()));
}
