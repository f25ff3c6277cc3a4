//! libweir.so.
