//! The CUDA driver API as a table.
