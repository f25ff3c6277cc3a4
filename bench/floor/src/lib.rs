//! The floor driver.
