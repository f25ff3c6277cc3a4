//! The plots: two sheets as PNG. The frontier (latency against what the training job still gets done), and everything else that has a
//! bar or a course: overhead, shares, silence, the step of a resize. Letters come from a font that is compiled in: a machine with a
//! GPU may have none.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters_bitmap::BitMapBackend;
use serde_json::Value;

use super::finding::Document;
use super::letters::{HEIGHT, Lettered, width};
use super::story::Story;
use crate::picture::{OTHER, WEIR};

/// Pixels of a sheet.
const SIZE: (u32, u32) = (1_200, 900);

/// A plot of a sheet.
type Area<'a> = DrawingArea<Lettered<'a>, Shift>;

/// Draws both sheets into a directory, each as far as its stories have been told.
pub fn draw(document: &Document, directory: &Path) -> Result<(), Box<dyn Error>> {
    let figures = |story: Story| {
        let told = document.stories.iter().find(|told| told.story == story);
        told.map_or(Value::Null, |told| told.finding.figures.clone())
    };
    let on = if document.simulated { "SIMULATED GPU".into() } else { text(&document.machine["gpu"]["name"]) };
    let points = points(&figures(Story::Latency)).chain(points(&figures(Story::Mps))).collect::<Vec<_>>();
    if !points.is_empty() {
        sheet(&directory.join("frontier.png"), |area| frontier(area, &points, &on))?;
    }
    let bars = [
        overhead(&figures(Story::Overhead)),
        silence(&figures(Story::Silence)),
        shares(&figures(Story::Share)),
    ];
    let step = figures(Story::Resize)["steps"][0].clone();
    if bars.iter().any(|plot| !plot.rows.is_empty()) || step.is_array() {
        sheet(&directory.join("figures.png"), |area| {
            let quarters = area.split_evenly((2, 2));
            for (quarter, plot) in quarters.iter().zip(&bars) {
                plot.draw(quarter, &on)?;
            }
            course(&quarters[3], &step, &on)
        })?;
    }
    Ok(())
}

/// A sheet of paper: what `paint` paints, as a PNG.
fn sheet(
    path: &Path,
    paint: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut pixels = vec![0_u8; (3 * SIZE.0 * SIZE.1) as usize];
    {
        let area = Lettered(BitMapBackend::with_buffer(&mut pixels, SIZE)).into_drawing_area();
        area.fill(&WHITE)?;
        paint(&area)?;
        area.present()?;
    }
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), SIZE.0, SIZE.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(())
}

/// A rule of the frontier: who plays, by which rule, p99 by p99 alone, and the job's part.
type Point = (String, f64, f64);

fn points(figures: &Value) -> impl Iterator<Item = Point> + use<> {
    let points = figures["points"].as_array().cloned().unwrap_or_default();
    points.into_iter().filter_map(|point| {
        let name = format!("{} {}", text(&point["side"]), text(&point["rule"]));
        Some((name, point["p99_ratio"].as_f64()?, point["job_percent"].as_f64()?))
    })
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The better a rule the further it is to the right and down.
fn frontier(area: &Area<'_>, points: &[Point], on: &str) -> Result<(), Box<dyn Error>> {
    let ratios = || points.iter().map(|(_, ratio, _)| *ratio);
    let (least, most) = (0.9 * ratios().fold(1.0, f64::min), 1.5 * ratios().fold(2.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{on}: a server beside a training job"), ("monospace", HEIGHT))
        .margin(20)
        .x_label_area_size(50)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..110.0, (least..most).log_scale())?;
    chart
        .configure_mesh()
        .label_style(("monospace", HEIGHT))
        .light_line_style(TRANSPARENT)
        .x_desc("the job's work, percent of its work alone (across: the server's p99 by p99 alone)")
        .y_label_formatter(&|ratio| format!("{ratio:.1}x"))
        .draw()?;
    for (name, ratio, job) in points {
        let color = if name.contains("weir") { WEIR } else { OTHER };
        chart.draw_series([Circle::new((*job, *ratio), 5, color.filled())])?;
        let (x, y) = chart.backend_coord(&(*job, *ratio));
        let room = SIZE.0.cast_signed() - 20;
        let left = (x + 9).min(room - width(name).cast_signed());
        area.draw(&Text::new(name.clone(), (left, y - 18), ("monospace", HEIGHT).into_font().color(&color)))?;
    }
    Ok(())
}

/// Rows of one figure each, with how far it spreads and where its limit is.
struct Plot {
    caption: &'static str,
    rows: Vec<Row>,
    limit: Option<f64>,
}

/// A row: from, to, the figure itself, and whether it is Weir's.
struct Row {
    name: String,
    spread: (f64, f64),
    value: f64,
    ours: bool,
}

impl Plot {
    fn draw(&self, area: &Area<'_>, on: &str) -> Result<(), Box<dyn Error>> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let ends = self.rows.iter().flat_map(|row| [row.spread.0, row.spread.1, row.value]).chain(self.limit);
        let (least, most) =
            ends.fold((0.0_f64, 0.0_f64), |(least, most), end| (least.min(end), most.max(end)));
        let margin = (0.05 * (most - least)).max(0.01);
        let names = self.rows.iter().map(|row| width(&row.name)).max().unwrap_or(0);
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{on}: {}", self.caption), ("monospace", HEIGHT))
            .margin(12)
            .margin_left(names + 24)
            .x_label_area_size(30)
            .build_cartesian_2d(least - margin..most + margin, self.rows.len() as f64..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .label_style(("monospace", HEIGHT))
            .x_labels(5)
            .draw()?;
        if let Some(limit) = self.limit {
            let line = [(limit, 0.0), (limit, self.rows.len() as f64)];
            chart.draw_series([PathElement::new(line.to_vec(), RED)])?;
        }
        for (n, row) in self.rows.iter().enumerate() {
            let (at, color) = (n as f64 + 0.5, if row.ours { WEIR } else { OTHER });
            chart.draw_series([PathElement::new([(row.spread.0, at), (row.spread.1, at)], color)])?;
            chart.draw_series([Circle::new((row.value, at), 4, color.filled())])?;
            let (_, y) = chart.backend_coord(&(row.value, at));
            let (_, rows) = area.get_pixel_range();
            area.draw(&Text::new(
                row.name.clone(),
                (10, y - rows.start - HEIGHT / 2),
                ("monospace", HEIGHT).into_font(),
            ))?;
        }
        Ok(())
    }
}

fn rows(figures: &Value, list: &str, row: impl Fn(&Value) -> Option<Row>) -> Vec<Row> {
    figures[list].as_array().into_iter().flatten().filter_map(row).collect()
}

fn overhead(figures: &Value) -> Plot {
    let row = |case: &Value| {
        let added = &case["added_percent"];
        Some(Row {
            name: format!("{} {}", text(&case["side"]), text(&case["work"])),
            spread: (added["min"].as_f64()?, added["max"].as_f64()?),
            value: added["median"].as_f64()?,
            ours: case["interposer"] == "libweir.so",
        })
    };
    Plot { caption: "added to a round, percent", rows: rows(figures, "cases", row), limit: Some(0.5) }
}

fn silence(figures: &Value) -> Plot {
    let row = |case: &Value| {
        let silent = &case["silent_us"];
        Some(Row {
            name: text(&case["unit"]),
            spread: (silent["median"].as_f64()?, silent["max"].as_f64()?),
            value: silent["p99"].as_f64()?,
            ours: true,
        })
    };
    Plot {
        caption: "fillers silent after, us (median to worst, p99)",
        rows: rows(figures, "cases", row),
        limit: None,
    }
}

fn shares(figures: &Value) -> Plot {
    let row = |case: &Value| {
        let requests =
            case["requests_percent"].as_array()?.iter().map(ToString::to_string).collect::<Vec<_>>();
        let worst = case["worst_error_points"].as_f64()?;
        let ours = case["under"] == "weir";
        let under = if ours { "" } else { ", sliced" };
        Some(Row {
            name: format!("{} {}{under}", text(&case["work"]), requests.join("/")),
            spread: (0.0, worst),
            value: worst,
            ours,
        })
    };
    Plot { caption: "share error, points", rows: rows(figures, "cases", row), limit: Some(2.0) }
}

/// Two tenants' shares after theirs were exchanged: of 60 and 30 percent the green one's is the smaller now.
fn course(area: &Area<'_>, step: &Value, on: &str) -> Result<(), Box<dyn Error>> {
    let looks = step.as_array().map_or(&[][..], Vec::as_slice);
    let Some(last) = looks.last().and_then(|look| look[0].as_f64()) else { return Ok(()) };
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{on}: shares, exchanged to 30 % and 60 % at 0 ms"), ("monospace", HEIGHT))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..last, 0.0..100.0)?;
    let mesh = &mut chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT).label_style(("monospace", HEIGHT)).x_labels(5);
    mesh.x_label_formatter(&|ms| format!("{ms:.0} ms"))
        .y_label_formatter(&|percent| format!("{percent:.0} %"))
        .draw()?;
    for (tenant, color) in [WEIR, OTHER].into_iter().enumerate() {
        let line = looks.iter().filter_map(|look| Some((look[0].as_f64()?, look[1][tenant].as_f64()?)));
        chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_has_letters_on_a_machine_without_fonts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sheet.png");
        let points = [("driver weir".to_owned(), 1.04, 70.0), ("driver plain slicing".to_owned(), 9.0, 80.0)];
        sheet(&path, |area| frontier(area, &points, "a GPU")).unwrap();
        let mut reader =
            png::Decoder::new(std::io::BufReader::new(File::open(&path).unwrap())).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let tinted = pixels.chunks(3).filter(|pixel| pixel[0] != pixel[1] || pixel[1] != pixel[2]).count();
        // Two circles of five pixels' radius have some 180; what is more is letters in their colours.
        assert!(tinted > 600, "{tinted}");
    }
}
