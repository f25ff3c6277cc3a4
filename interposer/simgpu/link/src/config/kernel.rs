//! What kernels cost: rows of the table. The same rows serve Weir's node manager as price table.
//!
//! ```toml
//! [[kernel]]
//! name = "gemm_*"        # `*` stands for any text, also none
//! time_us = 120.5        # alone on the GPU, whatever the grid; or
//! # ns_per_block = 5000  # times the waves of its grid
//! blocks = 54            # holds that many SMs instead of what its grid says (optional)
//! bandwidth = 40         # percent of the memory bandwidth (optional, 0)
//! spread = 10            # its longest launch takes 10 times its shortest, as its data want (optional, 1)
//! spins = true           # it runs until the 32-bit word at its first parameter (an address) is no longer 0
//! ```

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

/// Longest time in a row, us (1 hour).
const LONGEST_US: f64 = 3.6e9;

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelRow {
    /// Which kernels: a name, `*` for any text.
    pub name: String,
    /// Time alone, us.
    #[serde(default, deserialize_with = "time")]
    pub time_us: Option<f64>,
    /// Time of one block, ns.
    #[serde(default)]
    pub ns_per_block: Option<u64>,
    /// Blocks resident, instead of the grid's.
    #[serde(default)]
    pub blocks: Option<u32>,
    /// Percent of the memory bandwidth.
    #[serde(default, deserialize_with = "percent")]
    pub bandwidth: u32,
    /// Longest by shortest launch: a kernel whose time depends on its data. The time in the row is then the geometric mean.
    #[serde(default = "one", deserialize_with = "spread")]
    pub spread: f64,
    /// It runs until the word at its first parameter is set, however long that is.
    #[serde(default)]
    pub spins: bool,
}

fn one() -> f64 {
    1.0
}

fn spread<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    match f64::deserialize(from)? {
        value if (1.0..=1_000.0).contains(&value) => Ok(value),
        value => Err(de::Error::custom(format!("{value} is not between 1 and 1000"))),
    }
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let value = Option::<f64>::deserialize(from)?;
    match value {
        Some(us) if !(us > 0.0 && us <= LONGEST_US) => {
            Err(de::Error::custom(format!("{us} is not between 0.001 and {LONGEST_US} us")))
        }
        _ => Ok(value),
    }
}

fn percent<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        value @ 0..=100 => Ok(value),
        value => Err(de::Error::custom(format!("{value} is not between 0 and 100 percent"))),
    }
}

impl KernelRow {
    /// What the data of the `n`th launch make of `ns`: a factor drawn log-uniformly, the same in every run.
    pub fn of_data(&self, ns: u64, n: u64) -> u64 {
        if self.spread <= 1.0 {
            return ns;
        }
        // A Weyl sequence (steps of 2^64 / golden ratio) fills the interval evenly.
        let place = (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1u64 << 53) as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole ns are meant")]
        let ns = (ns as f64 * self.spread.powf(place - 0.5)) as u64;
        ns.clamp(1, crate::command::LONGEST_NS)
    }

    /// Time alone on the GPU, ns, of a grid of `blocks`, of which `per_sm` fit on each of `sms` SMs. Blocks
    /// run in waves: a last wave that is nearly empty costs as much as a full one (the tail).
    pub fn solo_ns(&self, blocks: u64, per_sm: u32, sms: u32, default_ns_per_block: u64) -> u64 {
        match self.time_us {
            #[allow(clippy::cast_possible_truncation, reason = "whole ns are meant")]
            // A positive finite f64 in range (checked when read), so the cast is exact to the ns.
            Some(us) => ((us * 1e3) as u64).max(1),
            None => waves_ns(self.ns_per_block.unwrap_or(default_ns_per_block), blocks, per_sm, sms),
        }
    }
}

/// Time of `blocks` in waves of `per_sm` x `sms`, ns.
pub fn waves_ns(ns_per_block: u64, blocks: u64, per_sm: u32, sms: u32) -> u64 {
    let wave = u64::from(per_sm.max(1)) * u64::from(sms.max(1));
    blocks.max(1).div_ceil(wave).saturating_mul(ns_per_block).clamp(1, crate::command::LONGEST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_data_takes_between_its_shortest_and_its_longest_and_all_of_that() {
        let row: KernelRow = toml::from_str("name = 'a'\ntime_us = 10.0\nspread = 100.0").unwrap();
        let times: Vec<u64> = (0..1_000).map(|n| row.of_data(10_000, n)).collect();
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!((1_000..1_100).contains(least) && (90_000..=100_000).contains(most), "{least}, {most}");
    }

    #[test]
    fn one_block_more_than_a_wave_costs_a_second_wave() {
        assert_eq!(waves_ns(1_000, 108, 1, 108), 1_000);
        assert_eq!(waves_ns(1_000, 109, 1, 108), 2_000);
        assert_eq!(waves_ns(1_000, 109, 2, 108), 1_000);
    }
}
