//! Watching the run: shares over time, by the driver's account.

use std::io;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::driver_side::{DriverSide, Reading};
use super::program::PROGRAMS;
use crate::rig::{Control, Rig};

/// Time between two readings of the account.
const PERIOD: Duration = Duration::from_millis(200);

/// Both programs' shares at one moment.
pub struct Point {
    /// Seconds since the first reading.
    pub seconds: f64,
    /// Share of each tenant since the reading before, in percent.
    pub percent: Vec<f64>,
}

/// Everything seen so far.
pub struct Watch {
    pids: Vec<Vec<i32>>,
    first_ns: Option<u64>,
    last: Option<Reading>,
    looked: Instant,
    points: Vec<Point>,
}

impl Watch {
    /// Knows whose processes are whose, and has seen nothing yet.
    pub fn begin(control: &mut Control) -> io::Result<Self> {
        let stats = control.stats()?;
        let pids_of = |name: &str| stats.tenants.iter().find(|t| t.name == name).map(|t| t.pids.clone());
        let pids: Option<Vec<_>> = PROGRAMS.iter().map(|row| pids_of(row.name)).collect();
        let pids =
            pids.ok_or_else(|| io::Error::other("a tenant is missing from the node manager's list"))?;
        Ok(Self { pids, first_ns: None, last: None, looked: Instant::now(), points: Vec::new() })
    }

    /// The shares seen so far.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Watches for a while; each tenant's share of it, in percent.
    pub fn window(
        &mut self,
        length: Duration,
        side: &mut DriverSide,
        rig: &Rig,
        progress: &ProgressBar,
    ) -> io::Result<Vec<f64>> {
        let (start, begun) = (side.read(rig, &self.pids)?, Instant::now());
        while begun.elapsed() < length {
            std::thread::sleep(PERIOD);
            self.look(side, rig, progress)?;
        }
        Ok(shares(&start, &side.read(rig, &self.pids)?))
    }

    /// Takes a reading if one is due.
    pub fn look(&mut self, side: &mut DriverSide, rig: &Rig, progress: &ProgressBar) -> io::Result<()> {
        if self.last.is_some() && self.looked.elapsed() < PERIOD {
            return Ok(());
        }
        self.looked = Instant::now();
        let reading = side.read(rig, &self.pids)?;
        let first = *self.first_ns.get_or_insert(reading.now_ns);
        if let Some(last) = self.last.replace(reading) {
            let reading = self.last.as_ref().unwrap_or(&last);
            let point = Point {
                seconds: reading.now_ns.saturating_sub(first) as f64 / 1e9,
                percent: shares(&last, reading),
            };
            let shown: Vec<String> = PROGRAMS
                .iter()
                .zip(&point.percent)
                .map(|(row, share)| format!("{} {share:.0} %", row.what))
                .collect();
            progress.set_message(shown.join("   "));
            self.points.push(point);
        }
        Ok(())
    }

    /// Whether a tenant launches on: a handful of launches within a second.
    pub fn launches_go_on(&self, control: &mut Control, tenant: usize) -> io::Result<bool> {
        let count = |control: &mut Control| -> io::Result<u64> {
            let stats = control.stats()?;
            let of = stats.tenants.iter().find(|t| t.name == PROGRAMS[tenant].name);
            Ok(of.map_or(0, |t| t.gpus.iter().map(|gpu| gpu.total.launches).sum()))
        };
        let (before, begun) = (count(control)?, Instant::now());
        while begun.elapsed() < Duration::from_secs(5) {
            if count(control)? > before + 5 {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }
}

fn shares(start: &Reading, end: &Reading) -> Vec<f64> {
    let wall = end.now_ns.saturating_sub(start.now_ns).max(1) as f64;
    let used =
        start.used_ns.iter().zip(&end.used_ns).map(|(before, after)| after.saturating_sub(*before) as f64);
    used.map(|ns| 100.0 * ns / wall).collect()
}
