//! Best-effort work under `weir-cluster serve` at two sites: it runs where power is clean in this hour, moves when that changes, and ends
//! when as much was done as was asked for.

use std::path::Path;

use weir_cluster::control::model::State;
use weir_cluster::control::serve::Standings;
use weir_tests::cluster::{Cluster, KERNELS, PRICED, node_here};
use weir_tests::node::Node;
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

/// Hours for which the signals are known, and after which the work is to be done.
const HOURS: u64 = 6;

/// Names the sites of the two nodes.
const SITES: [&str; 2] = ["north", "south"];

fn standings(cluster: &Cluster) -> Option<Standings> {
    serde_json::from_value(cluster.standings("ps", &[])?).ok()
}

/// A whole hour that lies so many ahead, as people write it.
fn hour(now_ns: u64, ahead: u64) -> String {
    let seconds = now_ns / 1_000_000_000 / 3_600 * 3_600 + ahead * 3_600;
    jiff::Timestamp::from_second(seconds.cast_signed()).expect("a time").to_string()
}

/// What the power of both sites sets free in each hour, in grams of CO2 per kilowatt-hour.
fn write_signals(path: &Path, now_ns: u64, grams: [u32; 2]) {
    let rows = (0..HOURS).flat_map(|ahead| {
        let row = move |(site, grams)| format!("{},{site},{grams},\n", hour(now_ns, ahead));
        SITES.iter().zip(grams).map(row)
    });
    let text = format!("hour,site,grams_per_kwh,cap_watts\n{}", rows.collect::<String>());
    std::fs::write(path, text).expect("a file");
}

/// Waits until one instance runs, on this node, and none on the other.
fn wait_for(cluster: &Cluster, node: usize) {
    let name = format!("n{node}");
    wait::until(&format!("work at {} alone", SITES[node]), || {
        let instances = standings(cluster)?.instances;
        let runs = instances.len() == 1 && instances[0].state == State::Ready;
        (runs && instances[0].place.node == name).then_some(())
    });
}

#[test]
fn best_effort_work_goes_where_power_is_clean_moves_with_it_and_ends_when_it_is_done() {
    let gpus = [SimGpu::new(KERNELS), SimGpu::new(KERNELS)];
    let nodes = [Node::start(&gpus[0], PRICED), Node::start(&gpus[1], PRICED)];
    let folder = tempfile::tempdir().expect("a directory");
    let signals = folder.path().join("signals.csv");
    let since_1970 = std::time::UNIX_EPOCH.elapsed().expect("a time");
    let now_ns = u64::try_from(since_1970.as_nanos()).expect("before 2554");
    write_signals(&signals, now_ns, [50, 400]);
    let rows = [0, 1].map(|at| format!("{}site = {:?}\n", node_here(at, &gpus[at], &nodes[at]), SITES[at]));
    let sites = SITES.map(|name| format!("[[site]]\nname = {name:?}\nidle_watts = 50\nbusy_watts = 400\n"));
    let text = format!(
        "signals = {signals:?}\nstale_after_s = 3\n{}{}[[service]]\nname = \"work\"\ncommand = [{:?}, \"--seconds\", \"600\"]\n\
         class = \"filler\"\nready = \"runs\"\nrequest = \"0%\"\nmemory = \"1GiB\"\ngpu_hours = 0.008\ndone_by = {:?}\n",
        sites.concat(),
        rows.concat(),
        crate::LOOP,
        hour(now_ns, HOURS),
    );
    let mut cluster = Cluster::of(&gpus[0].dist().weir(), &text);
    wait_for(&cluster, 0);
    let why = standings(&cluster).expect("an answer").services["work"].why.clone();
    assert!(why.contains("GPU-hours are left, at 18 g CO2 each"), "350 W for an hour at 50 g: {why}");
    write_signals(&signals, now_ns, [400, 100]);
    wait_for(&cluster, 1);
    std::fs::write(&signals, "hour,site\nnonsense\n").expect("a file");
    wait::until("a word on what is no signal", || {
        cluster.log().contains("the signals before go on").then_some(())
    });
    cluster.kill();
    cluster.start_again();
    let refused = wait::until("a controller that refuses to start by them", || {
        let log = cluster.log();
        log.contains("signals.csv:2").then_some(log)
    });
    assert!(refused.contains("signals have the columns"), "{refused}");
    write_signals(&signals, now_ns, [400, 100]);
    cluster.start_again();
    wait::until("an end, as 29 s of a GPU were done, those before the kill among them", || {
        let standings = standings(&cluster)?;
        let done = standings.services.get("work")?.why == "its work is done";
        (done && standings.instances.is_empty()).then_some(())
    });
    let books = gpus.iter().flat_map(|gpu| gpu.books().gpus.swap_remove(0).clients);
    let done_ns: u64 = books.flat_map(|client| client.contexts).map(|context| context.true_use_ns).sum();
    assert!((26_000_000_000..36_000_000_000).contains(&done_ns), "{done_ns} ns of 29 s");
}
