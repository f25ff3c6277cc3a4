//! Once loaded the library stays: threads keep its functions' addresses (F09 in docs/FAULTS.md).
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
