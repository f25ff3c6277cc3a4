//! The table as docs/simulator.md has it.

use std::fmt::Write;

use super::Row;
use super::shares::Point;

/// All statements, and how far off the latencies under it are.
pub fn markdown(rows: &[Row], shares: &[Point]) -> String {
    let mut text = String::from(
        "| statement | source | published | *simulated* | of all cases and rivals | `weir` in its place | shape |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let (least, most) = row.range();
        let weir = if row.statement.rule == super::OURS { "-".into() } else { number(row.with_weir) };
        let _ = writeln!(
            text,
            "| {} (`{}`) | {} | {} | {} | {} to {} | {weir} | {} |",
            row.statement.says,
            row.statement.name,
            row.statement.source,
            row.statement.published.text(),
            number(row.simulated),
            number(least),
            number(most),
            row.verdict.as_str(),
        );
    }
    let mut off: Vec<&Point> = shares.iter().filter(|point| point.follows()).collect();
    off.sort_by(|a, b| a.off_percent().total_cmp(&b.off_percent()));
    if let (Some(median), Some(worst)) = (off.get(off.len() / 2), off.last()) {
        let _ = writeln!(
            text,
            "\nLatencies at 20, 30 and 50 % of the SMs, {} points: {:.0} % off in the median, {:.0} % at worst ({} at {} %)",
            off.len(),
            median.off_percent(),
            worst.off_percent(),
            worst.model,
            worst.sm_percent,
        );
    }
    text
}

/// Three digits that say something.
pub fn number(ratio: f64) -> String {
    match ratio {
        10.0.. => format!("{ratio:.1}"),
        1.0.. => format!("{ratio:.2}"),
        _ => format!("{ratio:.3}"),
    }
}
