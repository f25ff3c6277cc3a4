//! Gate, meter and ledger.
