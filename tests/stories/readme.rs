//! The commands of the README, as they stand there.

use std::path::Path;
use std::process::Command;

use weir_tests::looping::Looping;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::Program;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::{LOOP, MEMORY};

/// Its lines that call `weir`, without what is said of them.
fn commands() -> Vec<Vec<&'static str>> {
    let lines = include_str!("../../README.md").lines().filter(|line| line.starts_with("weir "));
    let words =
        |line: &'static str| line.split_whitespace().skip(1).take_while(|word| !["#", "&"].contains(word));
    lines.map(|line| words(line).collect()).collect()
}

/// `weir run` of the README, of this program in the place of the one that it names.
fn run(gpu: &SimGpu, node: &Node<'_>, command: &[&str], program: &str) -> Program {
    let flags = command.iter().take_while(|word| **word != "--");
    Program::bare(gpu, gpu.dist().weir()).arg("--dir").arg(node.dir()).args(flags).args(["--", program])
}

#[test]
fn every_command_of_the_readme_does_what_it_is_for() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let commands = commands();
    let [start, train, serve, rest @ ..] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((start[..].join(" ").as_str(), train[0], serve[0]), ("node", "run", "run"));
    let train = Looping::start(run(&gpu, &node, train, LOOP));
    let serve = Memory::start(run(&gpu, &node, serve, MEMORY)); // idle, so that it can be parked
    assert!(rest.len() >= 10, "{rest:?}");
    for command in rest {
        let mut weir = Command::new(gpu.dist().weir());
        weir.arg("--dir").arg(node.dir()).args(command).envs(gpu.environment());
        let output = weir.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).output();
        let output = output.expect("weir starts");
        assert!(output.status.success() && !output.stdout.is_empty(), "weir {command:?}: {output:?}");
    }
    serve.finish().well();
    train.finish().well();
}
