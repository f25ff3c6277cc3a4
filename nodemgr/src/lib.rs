//! The node manager.
