//! Training over several sites, and signals from outside: pure, time and signals come in.
//!
//! ```text
//!   model    what there is: sites with hardware, data and links; a training; best-effort work; signals
//!   split    each site's part of a training, so that rounds end together
//!   shift    when and where best-effort work runs, by carbon, under power caps and a deadline
//!   signals  carbon and caps by the hour, as a file that is kept up to date
//!   file     all of it from a TOML file, with the line of every mistake
//! ```
//!
//! Data are in samples, speeds in samples a second, times in seconds, power in watts, carbon in grams.

pub mod file;
mod model;
pub mod shift;
pub mod signals;
pub mod split;

pub use self::model::{Batch, Hour, Setting, Site, Training};
