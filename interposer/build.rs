//! Once loaded the library stays: threads keep its functions' addresses (F09 in docs/FAULTS.md). In the driver's place it
//! has the driver's name.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Our table of hooks means our own functions. Else the loader looks each of them up in every program that starts, and
    // finds another preload's.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    if std::env::var_os("CARGO_FEATURE_PROXY").is_some() {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    }
}
