use std::path::PathBuf;

use super::*;

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,32000,131072,0,\n";
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,12000,16384,1,460\np1,1000,1024,0,0\n";

fn read(nodes: &str, pods: &str) -> Result<Openb, Fault> {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = ["nodes.csv", "pods.csv"].iter().map(|name| dir.path().join(name)).collect();
    std::fs::write(&paths[0], nodes).unwrap();
    std::fs::write(&paths[1], pods).unwrap();
    Openb::read(&paths[0], &paths[1])
}

/// Where in which file, and the message.
fn refusal(nodes: &str, pods: &str) -> (String, String) {
    let fault = read(nodes, pods).unwrap_err();
    let at = fault.at.unwrap_or_default();
    (at.rsplit('/').next().unwrap_or_default().to_owned(), fault.message)
}

#[test]
fn nodes_and_pods_are_read_with_their_units() {
    let trace = read(NODES, PODS).unwrap();
    assert_eq!(trace.gpus(), 2);
    assert_eq!(trace.nodes[0].memory, Bytes::gib(256));
    assert_eq!(trace.pods[0].demand.request, SmShare::permille(460));
    assert_eq!(trace.pods[0].demand.cpu, MilliCpu(12_000));
    assert_eq!(trace.pods[1].demand.gpus, 0);
}

#[test]
fn the_models_that_will_do_are_read() {
    let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1,1,1,10,P100|T9\np1,1,1,1,10,\np2,1,1,1,10,T9\n";
    let trace = read(NODES, pods).unwrap();
    let cluster = trace.cluster(0..2).unwrap();
    let p100 = cluster.class("P100").unwrap();
    let allowed: Vec<bool> = trace.pods.iter().map(|pod| pod.demand.classes.has(p100)).collect();
    assert_eq!(allowed, [true, true, false]);
    assert!(cluster.could_hold(&trace.pods[2].demand).is_err(), "no node has the only model that will do");
}

#[test]
fn every_mistake_in_a_list_has_its_line() {
    let pods = |line: &str| format!("{PODS}{line}\n");
    let cases = [
        ("p2,-1,1,1,10", "field 1: invalid digit found in string"),
        ("p2,99999999999,1,1,10", "field 1: number too large to fit in target type"),
        ("p2,1,1,1,NaN", "field 4: invalid digit found in string"),
        ("p2,1,1,1,1001", "1001 thousandths of one GPU"),
        ("p2,1,1,0,5", "5 thousandths of no GPU"),
        ("p2,1,1,2,0", "no share of 2 GPUs"),
        ("p2,1,1,17,1000", "17 GPUs, more than 16"),
        ("p2,1,1", "3 values where the head has 5"),
        ("p0,1,1,1,10", "pod `p0` stands there twice"),
    ];
    for (line, message) in cases {
        assert_eq!(refusal(NODES, &pods(line)), ("pods.csv:4".to_owned(), message.to_owned()), "{line}");
    }
}

#[test]
fn a_node_list_is_checked_as_well() {
    let nodes = |line: &str| format!("{NODES}{line}\n");
    let cases = [
        ("n0,1,1,0,", "node `n0` stands there twice"),
        ("n2,1,1,2,", "2 GPUs of no model"),
        ("n2,1,1,0,T4", "model `T4`, but no GPU"),
        ("n2,1,1,300,T4", "field 3: number too large to fit in target type"),
    ];
    for (line, message) in cases {
        assert_eq!(refusal(&nodes(line), PODS), ("nodes.csv:4".to_owned(), message.to_owned()), "{line}");
    }
}

#[test]
fn a_column_that_is_unknown_or_missing_is_named() {
    let (at, message) =
        refusal(NODES, "name,cpu_milli,memory_mib,num_gpu,gpu_milli,colour\np0,1,1,1,10,red\n");
    assert_eq!(at, "pods.csv:2");
    assert!(message.contains("unknown field `colour`"), "{message}");
    let (_, message) = refusal(NODES, "name,cpu_milli,memory_mib,num_gpu\np0,1,1,1\n");
    assert!(message.contains("missing field `gpu_milli`"), "{message}");
}

#[test]
fn a_list_without_lines_or_without_a_file_is_refused() {
    assert_eq!(refusal(NODES, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n").1, "no line below the head");
    let fault = Openb::read(Path::new("/nowhere/nodes.csv"), Path::new("/nowhere/pods.csv")).unwrap_err();
    assert_eq!(fault.at.as_deref(), Some("/nowhere/nodes.csv"));
    assert_eq!(fault.exit, crate::fault::CONFIG);
}
