//! The broker.
fn main() {}
