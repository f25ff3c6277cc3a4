//! Driver and broker.
