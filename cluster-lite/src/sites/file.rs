//! Sites from a TOML file, with the line of every mistake.
//!
//! ```toml
//! [[site]]
//! name = "north"
//! gpus = 8
//! samples_per_s = 120.0        # of one GPU
//! samples = 600000             # that lie there
//! wan_gbit_per_s = 1.0
//! gpu_hour_cost = 2.0
//! busy_watts = 400.0
//! idle_watts = 50.0
//! carbon_g_per_kwh = [320.0, 180.0, 90.0]   # hour by hour from now
//! power_cap_watts = [2500.0, 3200.0, 3200.0]   # if there are caps: as many
//!
//! [training]                   # if there is one
//! round_samples = 50000
//! sync_mib = 1024.0            # that each site sends, and receives, after a round
//! data_moves = false
//!
//! [batch]                      # best-effort work, if there is any
//! gpu_hours = 12.0
//! deadline_h = 3
//! ```

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::model::{Batch, Hour, Setting, Site, Training};
use super::shift;
use crate::fault::{CONFIG, Fault};
use crate::toml_lines::Lines;

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// Most of anything that is counted or measured: more than there is on earth.
const MOST: f64 = 1e15;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    site: Vec<Spanned<SiteRow>>,
    training: Option<Spanned<TrainingRow>>,
    batch: Option<Spanned<BatchRow>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteRow {
    name: Spanned<String>,
    gpus: Spanned<u32>,
    samples_per_s: Spanned<f64>,
    samples: u64,
    wan_gbit_per_s: Spanned<f64>,
    gpu_hour_cost: Spanned<f64>,
    busy_watts: Spanned<f64>,
    idle_watts: Spanned<f64>,
    #[serde(default)]
    carbon_g_per_kwh: Vec<Spanned<f64>>,
    power_cap_watts: Option<Spanned<Vec<Spanned<f64>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrainingRow {
    round_samples: Spanned<u64>,
    sync_mib: Spanned<f64>,
    data_moves: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchRow {
    gpu_hours: Spanned<f64>,
    deadline_h: Spanned<usize>,
}

/// Reads a file.
///
/// # Errors
/// A fault with file and line.
pub fn read(path: &Path) -> Result<Setting, Fault> {
    let failed = |error: std::io::Error| {
        let message = format!("the sites `{}` cannot be read: {error}", path.display());
        Fault::new(message, "docs/sites.md shows what to write").exit(CONFIG)
    };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > LARGEST {
        return Err(failed(std::io::Error::other(format!("it has {length} bytes, and a MiB is the most"))));
    }
    parse(&std::fs::read_to_string(path).map_err(failed)?, path)
}

/// What a text says; `path` is for messages only.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, path: &Path) -> Result<Setting, Fault> {
    let source = Source { lines: Lines::new(text, path) };
    let file: File = toml::from_str(text).map_err(|error| {
        source.lines.misunderstood(&error, "the sites are", "docs/sites.md shows what to write")
    })?;
    if file.site.is_empty() {
        return Err(source.lines.wrong(0, "there is no site", "write at least one [[site]]"));
    }
    let mut sites: Vec<Site> = Vec::new();
    for row in &file.site {
        let site = source.site(row.get_ref())?;
        if sites.iter().any(|other| other.name == site.name) {
            let at = row.get_ref().name.span().start;
            return Err(source.lines.wrong(
                at,
                format!("there are two sites `{}`", site.name),
                "give each a name of its own",
            ));
        }
        sites.push(site);
    }
    let training = file.training.as_ref().map(|row| source.training(row, &sites)).transpose()?;
    let batch = file.batch.as_ref().map(|row| source.batch(row, &sites)).transpose()?;
    if training.is_none() && batch.is_none() {
        return Err(source.lines.wrong(0, "there is nothing to plan", "write [training], [batch], or both"));
    }
    Ok(Setting { sites, training, batch })
}

struct Source<'a> {
    lines: Lines<'a>,
}

impl Source<'_> {
    /// A number above 0; or, where `zero` says so, at least that.
    fn number(&self, what: &str, number: &Spanned<f64>, zero: bool) -> Result<f64, Fault> {
        let value = *number.get_ref();
        if value.is_finite() && value <= MOST && (value > 0.0 || (zero && value == 0.0)) {
            return Ok(value);
        }
        let least = if zero { "from 0" } else { "above 0" };
        let message = format!("{value} is no {what}");
        Err(self.lines.wrong(number.span().start, message, format!("write a number {least} to {MOST:e}")))
    }

    fn site(&self, row: &SiteRow) -> Result<Site, Fault> {
        if *row.gpus.get_ref() == 0 {
            return Err(self.lines.wrong(
                row.gpus.span().start,
                "a site without GPUs",
                "write at least 1, or remove the site",
            ));
        }
        let busy_watts = self.number("power", &row.busy_watts, false)?;
        let idle_watts = self.number("power", &row.idle_watts, true)?;
        if busy_watts <= idle_watts {
            let message = format!("a busy GPU draws {busy_watts} W, and an idle one {idle_watts} W");
            return Err(self.lines.wrong(row.busy_watts.span().start, message, "a busy one draws more"));
        }
        Ok(Site {
            name: row.name.get_ref().clone(),
            gpus: *row.gpus.get_ref(),
            samples_per_s: self.number("speed", &row.samples_per_s, false)?,
            samples: row.samples,
            wan_bits_per_s: 1e9 * self.number("bandwidth", &row.wan_gbit_per_s, false)?,
            gpu_hour_cost: self.number("cost", &row.gpu_hour_cost, true)?,
            busy_watts,
            idle_watts,
            hours: self.hours(row)?,
        })
    }

    fn hours(&self, row: &SiteRow) -> Result<Vec<Hour>, Fault> {
        let caps = row.power_cap_watts.as_ref();
        if let Some(caps) = caps.filter(|caps| caps.get_ref().len() != row.carbon_g_per_kwh.len()) {
            let message =
                format!("{} power caps for {} hours", caps.get_ref().len(), row.carbon_g_per_kwh.len());
            return Err(self.lines.wrong(
                caps.span().start,
                message,
                "write one for each hour of carbon_g_per_kwh",
            ));
        }
        let hour = |(index, grams): (usize, &Spanned<f64>)| {
            let cap = caps.and_then(|caps| caps.get_ref().get(index));
            Ok(Hour {
                grams_per_kwh: self.number("carbon intensity", grams, true)?,
                cap_watts: cap.map(|cap| self.number("power cap", cap, true)).transpose()?,
            })
        };
        row.carbon_g_per_kwh.iter().enumerate().map(hour).collect()
    }

    fn training(&self, row: &Spanned<TrainingRow>, sites: &[Site]) -> Result<Training, Fault> {
        let TrainingRow { round_samples, sync_mib, data_moves } = row.get_ref();
        if *round_samples.get_ref() == 0 {
            return Err(self.lines.wrong(
                round_samples.span().start,
                "a round without samples",
                "write at least 1",
            ));
        }
        if !data_moves && sites.iter().all(|site| site.samples == 0) {
            let help = "write samples at the sites, or data_moves = true";
            return Err(self.lines.wrong(
                row.span().start,
                "no site has samples, and none may be moved",
                help,
            ));
        }
        let sync_bytes = self.number("size", sync_mib, true)? * 1_048_576.0;
        Ok(Training { sync_bytes, data_moves: *data_moves, round_samples: *round_samples.get_ref() })
    }

    fn batch(&self, row: &Spanned<BatchRow>, sites: &[Site]) -> Result<Batch, Fault> {
        let BatchRow { gpu_hours, deadline_h } = row.get_ref();
        let batch = Batch {
            gpu_hours: self.number("amount of work", gpu_hours, false)?,
            deadline_h: *deadline_h.get_ref(),
            gone: 0.0,
            most_gpus: f64::INFINITY,
        };
        let most = sites.iter().map(|site| site.hours.len()).max().unwrap_or(0);
        if batch.deadline_h == 0 || batch.deadline_h > most {
            let message =
                format!("a deadline in {} hours, where signals are known for {most}", batch.deadline_h);
            return Err(self.lines.wrong(
                deadline_h.span().start,
                message,
                "write a deadline within them, or more of carbon_g_per_kwh",
            ));
        }
        let capacity = shift::capacity(sites, batch.deadline_h);
        if batch.gpu_hours > capacity {
            let message =
                format!("{} GPU-hours by a deadline before which there are {capacity}", batch.gpu_hours);
            return Err(self.lines.wrong(
                gpu_hours.span().start,
                message,
                "set a later deadline, raise the power caps, or write less",
            ));
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::super::split;
    use super::*;

    const SITE: &str = "[[site]]\nname = \"a\"\ngpus = 2\nsamples_per_s = 10.0\nsamples = 100\nwan_gbit_per_s = 1.0\n\
        gpu_hour_cost = 2.0\nbusy_watts = 400.0\nidle_watts = 50.0\ncarbon_g_per_kwh = [300.0, 100.0]\n";
    const BATCH: &str = "[batch]\ngpu_hours = 3.0\ndeadline_h = 2\n";

    fn fault(text: &str) -> (u64, String) {
        let fault = parse(text, Path::new("s.toml")).unwrap_err();
        let line = fault.at.as_deref().and_then(|at| at.strip_prefix("s.toml:")).unwrap().parse().unwrap();
        (line, fault.message)
    }

    #[test]
    fn what_is_written_is_read() {
        let setting = parse(&format!("{SITE}{BATCH}"), Path::new("s.toml")).unwrap();
        assert_eq!(
            setting.batch,
            Some(Batch { gpu_hours: 3.0, deadline_h: 2, gone: 0.0, most_gpus: f64::INFINITY })
        );
        assert_eq!(setting.sites[0].hours[1], Hour { grams_per_kwh: 100.0, cap_watts: None });
    }

    #[test]
    fn the_example_is_planned_for_less_than_what_it_is_compared_with() {
        let text = include_str!("../../../docs/sites.example.toml");
        let Setting { sites, training, batch } = parse(text, Path::new("sites.example.toml")).unwrap();
        let (training, batch) = (training.unwrap(), batch.unwrap());
        let (even, matched) = (split::even(&sites, &training), split::matched(&sites, &training));
        assert!(matched.round_s <= even.round_s + 1e-9 && matched.cost < even.cost);
        let (fixed, following) =
            (shift::fixed(&sites, &batch).unwrap(), shift::following(&sites, &batch).unwrap());
        assert!(following.grams_per_gpu_hour < fixed.grams_per_gpu_hour);
    }

    #[test]
    fn every_mistake_has_its_line() {
        let with = |from: &str, to: &str| format!("{SITE}{BATCH}").replace(from, to);
        for (text, line, message) in [
            (with("gpus = 2", "gpus = 0"), 3, "a site without GPUs"),
            (with("gpus = 2", "gpus = -1"), 3, "invalid value"),
            (with("gpus = 2", "gpu = 2"), 3, "unknown key `gpu`"),
            (with("samples_per_s = 10.0", "samples_per_s = nan"), 4, "NaN is no speed"),
            (with("wan_gbit_per_s = 1.0", "wan_gbit_per_s = 0.0"), 6, "0 is no bandwidth"),
            (with("gpu_hour_cost = 2.0", "gpu_hour_cost = 1e300"), 7, "is no cost"),
            (with("busy_watts = 400.0", "busy_watts = 40.0"), 8, "a busy GPU draws 40 W"),
            (with("[300.0, 100.0]", "[300.0, -1.0]"), 10, "-1 is no carbon intensity"),
            (
                with("[300.0, 100.0]", "[300.0, 100.0]\npower_cap_watts = [1.0]"),
                11,
                "1 power caps for 2 hours",
            ),
            (
                with("gpu_hours = 3.0", "gpu_hours = 5.0"),
                12,
                "5 GPU-hours by a deadline before which there are 4",
            ),
            (with("deadline_h = 2", "deadline_h = 3"), 13, "a deadline in 3 hours"),
            (with("deadline_h = 2", "deadline_h = 2\ndeadline_h = 2"), 14, "duplicate key"),
            (format!("{SITE}{SITE}{BATCH}"), 12, "there are two sites `a`"),
            (SITE.into(), 1, "there is nothing to plan"),
            (SITE[..40].into(), 4, "not understood"),
        ] {
            let found = fault(&text);
            assert!(found.1.contains(message), "{message}: {found:?}");
            assert_eq!(found.0, line, "{message}");
        }
    }

    #[test]
    fn a_power_cap_that_leaves_too_little_refuses_the_work() {
        let text = format!("{SITE}power_cap_watts = [450.0, 100.0]\n{BATCH}");
        assert_eq!(fault(&text), (13, "3 GPU-hours by a deadline before which there are 1".into()));
    }
}
