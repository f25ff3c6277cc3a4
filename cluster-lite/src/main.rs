//! The `weir-cluster` command; everything it does is in the library, where it can be tested.

fn main() -> std::process::ExitCode {
    weir_cluster::cli::main()
}
