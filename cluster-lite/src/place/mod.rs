//! Where a demand goes: pure functions over what is known of a cluster.

pub mod interference;
pub mod paldia;
