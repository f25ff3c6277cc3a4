//! Contexts: what they cost by themselves, and what they grow by.

use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::shown;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::MEMORY;
use crate::small::{self, SMALL, client};

const MIB: u64 = 1 << 20;

/// What a context of the simulated driver costs, in bytes.
const CONTEXT: u64 = 400 * MIB;

/// What the ledger has for contexts, in bytes.
fn charged(node: &Node<'_>) -> u64 {
    small::charged(node, "context")
}

/// Asserts that the tenant's ledger is what the driver has in its books for the process.
#[track_caller]
fn agree(gpu: &SimGpu, node: &Node<'_>, process: &Memory) {
    let held = node.tenant("small").expect("the tenant lives").gpus[0].memory_held_bytes;
    assert_eq!(held, gpu.client(process.pid).expect("a client of the driver").memory_bytes);
}

#[test]
fn contexts_are_charged_what_they_cost_and_refused_where_that_is_known_and_does_not_fit() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    assert_eq!(charged(&node), CONTEXT);
    let state = node.tenant("small").expect("the tenant lives").gpus[0].processes[0].state;
    assert_eq!(state, weir_protocol::pages::ProcessState::Enforced, "it has launched nothing yet");
    let source = node.tenant("small").expect("the tenant lives").gpus[0].processes[0].context_source;
    assert_eq!(source, weir_protocol::pages::ContextSource::Process, "NVML lists the process");
    let contexts: Vec<_> = (0..3).map(|_| small.does("context")).collect();
    assert_eq!(charged(&node), 4 * CONTEXT);
    small.does(&format!("allocate {}", 100 * MIB));
    agree(&gpu, &node, &small);
    assert_eq!(small.tell("context").result, "CUDA_ERROR_OUT_OF_MEMORY", "five do not fit into 2 GiB");
    assert_eq!(small.does(&format!("context_attach {}", contexts[2])), contexts[2]);
    small.does(&format!("context_detach {}", contexts[2]));
    assert_eq!(charged(&node), 4 * CONTEXT, "its maker has it still");
    small.does(&format!("context_detach {}", contexts[2]));
    for context in &contexts[..2] {
        small.does(&format!("context_destroy {context}"));
    }
    assert_eq!(charged(&node), CONTEXT);
    agree(&gpu, &node, &small);
    small.does("primary_release");
    assert_eq!(charged(&node), 0);
}

#[test]
fn a_first_context_is_admitted_and_the_tenant_shown_as_overcommitted() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let tiny = Budget { memory: "100MiB", ..SMALL };
    let mut small = Memory::start(Program::under_weir(&gpu, Some(&node), tiny, MEMORY));
    let is_over = || node.tenant("small").expect("the tenant lives").gpus[0].overcommitted;
    assert_eq!((charged(&node), is_over()), (CONTEXT, true));
    assert_eq!(small.free_bytes(), 0);
    assert_eq!(small.tell("allocate 1").result, "CUDA_ERROR_OUT_OF_MEMORY");
    node.set("small", &["--memory", "1GiB"]);
    assert!(!is_over(), "within a larger limit it is not");
    small.does("allocate 1");
}

#[test]
fn a_context_whose_cost_the_operator_has_configured_is_refused_before_it_is_made() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\ncontext_memory = \"400MiB\"\n");
    let tiny = Budget { memory: "100MiB", ..SMALL };
    let (small, result) = Memory::try_start(Program::under_weir(&gpu, Some(&node), tiny, MEMORY));
    assert_eq!(result, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(gpu.client(small.pid).map_or(0, |client| client.memory_bytes), 0, "the driver was not called");
}

#[test]
fn contexts_that_grow_are_charged_for_it_and_beyond_the_limit_the_tenant_is_overcommitted() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let module = small.does(&format!("module {}", 64 * MIB));
    assert_eq!(charged(&node), CONTEXT + 64 * MIB, "the module's variable");
    small.does(&format!("heap {}", 8 * MIB + 256 * MIB));
    assert_eq!(charged(&node), CONTEXT + 320 * MIB);
    small.does(&format!("module_unload {module}"));
    assert_eq!(charged(&node), CONTEXT + 256 * MIB);
    agree(&gpu, &node, &small);
    let is_over = || node.tenant("small").expect("the tenant lives").gpus[0].overcommitted;
    assert!(!is_over());
    small.does(&format!("heap {}", 4096 * MIB));
    assert!(is_over());
    assert_eq!(small.tell("allocate 1").result, "CUDA_ERROR_OUT_OF_MEMORY");
    agree(&gpu, &node, &small);
    assert!(node.says(&["ps"]).contains(" overcommitted"), "{}", node.says(&["ps"]));
    let uuid = node.stats().gpus[0].uuid.clone();
    let row = format!("weir_overcommitted{{gpu=\"0\",UUID=\"{uuid}\",tenant=\"small\"}} 1.0");
    assert!(shown::metric(&node, &row));
    let told = || node.says(&["events"]).contains("small on GPU 0: overcommitted: ");
    wait::until("the event", || told().then_some(()));
    let stderr = small.finish().well().stderr;
    assert_eq!(stderr.matches("put the tenant over its limit").count(), 1, "{stderr}");
}
