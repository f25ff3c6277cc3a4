//! What processes do in their lives: fork, exec, start others, end; what lives beside Weir in them; and what fails. The
//! rows F01, F04 to F13 and F40 to F42 of `docs/FAULTS.md`, section 4.

mod beside;
mod deaths;
mod drivers;
mod ends;
mod failpoints;
mod forks;
mod lost_answers;
mod starts;

use std::fmt::Write;
use std::path::Path;

use weir_abi::SYMBOLS;
use weir_tests::life::Workshop;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program, Running};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

const BUDGET: Budget<'_> = Budget { name: "life", request: "100%", limit: "100%", memory: "2GiB" };

/// What a context of the simulated driver costs by itself, in bytes.
const CONTEXT: u64 = 400 << 20;

fn gpu() -> SimGpu {
    SimGpu::new(EVERY_KERNEL_20_US)
}

fn node(gpu: &SimGpu) -> Node<'_> {
    Node::start(gpu, "policy = \"static\"\n")
}

/// A program under a node manager.
fn managed(gpu: &SimGpu, node: &Node<'_>, program: &Path) -> Program {
    Program::under_weir(gpu, Some(node), BUDGET, program)
}

/// A program that is its own tenant.
fn alone(gpu: &SimGpu, program: &Path) -> Program {
    Program::under_weir(gpu, None, BUDGET, program)
}

/// Holds the tenant while its other processes come and go.
fn holder(gpu: &SimGpu, node: &Node<'_>) -> Running {
    managed(gpu, node, Path::new("cat")).start()
}

/// Waits until nobody of the tenant is there and nothing is held.
fn wait_for_an_empty_ledger(node: &Node<'_>) {
    wait::until("an empty ledger", || {
        let tenant = node.tenant(BUDGET.name)?;
        (tenant.pids.is_empty() && tenant.gpus[0].memory_held_bytes == 0).then_some(())
    });
}

/// The numbers behind the words of a line: `failed 0 grown 3` is [0, 3].
fn numbers(line: &str) -> Vec<i64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The search path of a driver that does nothing, on the simulated GPU's device: every function answers by `code_of`.
fn null_driver(workshop: &Workshop, gpu: &SimGpu, node: &Node<'_>, code_of: fn(&str) -> usize) -> String {
    let uuid = node.stats().gpus[0].uuid.replace("GPU-", "").replace('-', "");
    let bytes: Vec<_> = (0..uuid.len()).step_by(2).map(|at| format!("0x{}", &uuid[at..at + 2])).collect();
    let mut text = format!(
        "#include <string.h>\n\
         int cuDeviceGetUuid_v2(char *out, int device) {{ static const unsigned char uuid[] = {{{}}}; memcpy(out, uuid, 16); return 0; }}\n\
         int cuCtxGetDevice(int *device) {{ *device = 0; return 0; }}\n\
         int cuCtxGetCurrent(void **context) {{ *context = (void *)0x1000; return 0; }}\n\
         int cuMemAlloc_v2(void) {{ return {}; }}\n\
         int cuGetProcAddress(const char *name, void **found) {{ *found = (void *)cuMemAlloc_v2; return 0; }}\n\
         int cuGetProcAddress_v2(const char *name, void **found) {{ *found = (void *)cuMemAlloc_v2; return 0; }}\n",
        bytes.join(", "),
        code_of("cuMemAlloc_v2"),
    );
    let written = text.clone();
    for symbol in SYMBOLS.iter().filter(|symbol| !written.contains(&format!("int {}(", symbol.name))) {
        writeln!(text, "int {}(void) {{ return {}; }}", symbol.name, code_of(symbol.name))
            .expect("into a string");
    }
    workshop.library("libcuda.so.1", &text, &[]);
    format!("{}:{}", workshop.dir().display(), gpu.dist().simgpu().display())
}
