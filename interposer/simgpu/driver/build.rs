//! Links the library as what clients look for: its SONAME is `libcuda.so.1`, and its own calls and look-up
//! table stay bound to itself (`-Bsymbolic`), so that a preloaded library's hooks are not what it hands out.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
