//! How a program tells its rate: in its lines, by their number, or on a page of Prometheus text.

use std::time::{Duration, Instant};

use regex::Regex;

use super::program::Line;
use crate::fault::{Fault, USAGE};

/// Longest wait for a page.
const PAGE_PATIENCE: Duration = Duration::from_secs(2);

/// Where the rate comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A number in lines of stdout: what the pattern's first group matches.
    Pattern(Regex),
    /// Lines of stdout, each one unit of work.
    Lines,
    /// A metric of a page: a counter (`_total`, `_count`, `_sum`) by its growth, anything else by its value.
    Page {
        /// Its URL.
        url: String,
        /// The metric's name; all of its label sets are summed.
        metric: String,
    },
}

impl Source {
    /// A metric of a page.
    ///
    /// # Errors
    /// If that can be no page's URL.
    pub fn page(url: &str, metric: &str) -> Result<Self, Fault> {
        let is_page = url.parse::<hyper::Uri>().is_ok_and(|url| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.host().is_some_and(|host| !host.is_empty())
        });
        let help = "write it as --rate-from http://127.0.0.1:8000/metrics METRIC";
        let page = || Self::Page { url: url.to_owned(), metric: metric.to_owned() };
        is_page
            .then(page)
            .ok_or_else(|| Fault::new(format!("--rate-from: `{url}` is no URL of a page"), help).exit(USAGE))
    }
}

/// A pattern with one group.
///
/// # Errors
/// If it is no pattern, or has no group.
pub fn pattern(flag: &str, text: &str) -> Result<Regex, Fault> {
    let help = format!("write it as {flag} 'samples/s: ([0-9.]+)': the group in brackets is the number");
    let regex = Regex::new(text).map_err(|error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Fault::new(format!("{flag}: `{text}` is no pattern: {why}"), help.clone()).exit(USAGE)
    })?;
    if regex.captures_len() < 2 {
        return Err(Fault::new(format!("{flag}: `{text}` has no group"), help).exit(USAGE));
    }
    Ok(regex)
}

/// The number that a line has for a pattern.
///
/// # Errors
/// If what the pattern matches is no number that can be a rate or a latency.
pub fn number(pattern: &Regex, line: &str) -> Result<Option<f64>, Fault> {
    let Some(found) = pattern.captures(line).and_then(|groups| groups.get(1)) else { return Ok(None) };
    let value = found.as_str().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    value.map(Some).ok_or_else(|| {
        let message = format!("`{}` in the line `{line}` is no number of zero or more", found.as_str());
        Fault::new(message, "let the pattern's group match the digits and nothing else")
    })
}

/// What of a window was seen so far.
#[derive(Debug, Default)]
pub struct Window {
    began: Option<Instant>,
    lines: u32,
    last_line: Option<Instant>,
    values: Vec<f64>,
    first_page: Option<(Instant, f64)>,
    /// Latencies in milliseconds.
    pub latencies: Vec<f64>,
}

impl Window {
    /// Takes a line.
    ///
    /// # Errors
    /// As [`number`].
    pub fn line(&mut self, source: &Source, latency: Option<&Regex>, line: &Line) -> Result<(), Fault> {
        match source {
            Source::Pattern(pattern) => self.values.extend(number(pattern, &line.text)?),
            // The first line begins the window: from line to line, the program's own pace is measured whole.
            Source::Lines if self.began.is_none() => self.began = Some(line.at),
            Source::Lines => {
                self.lines += 1;
                self.last_line = Some(line.at);
            }
            Source::Page { .. } => {}
        }
        if let Some(latency) = latency {
            self.latencies.extend(number(latency, &line.text)?);
        }
        Ok(())
    }

    /// Reads the page, where there is one.
    ///
    /// # Errors
    /// If it cannot be read, or lacks the metric.
    pub fn page(&mut self, source: &Source) -> Result<(), Fault> {
        let Source::Page { url, metric } = source else { return Ok(()) };
        let (now, value) = (Instant::now(), read_page(url, metric)?);
        let (began, first) = *self.first_page.get_or_insert((now, value));
        let elapsed = (now - began).as_secs_f64();
        let is_counter = ["_total", "_count", "_sum"].iter().any(|end| metric.ends_with(end));
        match is_counter {
            true if elapsed > 0.0 => self.values = vec![(value - first).max(0.0) / elapsed],
            true => {}
            false => self.values.push(value),
        }
        Ok(())
    }

    /// The rate, once it can be told: of a few steps, or of one number that the program averaged itself.
    pub fn rate(&self, source: &Source) -> Option<f64> {
        let rate = match source {
            Source::Lines => {
                let elapsed = (self.last_line? - self.began?).as_secs_f64();
                (self.lines >= 4).then(|| f64::from(self.lines) / elapsed)
            }
            Source::Pattern(_) | Source::Page { .. } => {
                let sum: f64 = self.values.iter().sum();
                (!self.values.is_empty()).then(|| sum / self.values.len() as f64)
            }
        };
        rate.filter(|rate| rate.is_finite() && *rate > 0.0)
    }
}

/// Sum of a metric over its label sets.
fn read_page(url: &str, metric: &str) -> Result<f64, Fault> {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(PAGE_PATIENCE)).build().into();
    let page = agent.get(url).call().and_then(|mut answer| answer.body_mut().read_to_string());
    let page = page.map_err(|error| {
        let help = "give the URL of a page of Prometheus text that the program serves, with --rate-from";
        Fault::new(format!("`{url}` cannot be read: {error}"), help)
    })?;
    sum_of(&page, metric).ok_or_else(|| {
        Fault::new(
            format!("`{url}` has no metric `{metric}`"),
            "look at the page for the metric's whole name",
        )
    })
}

fn sum_of(page: &str, metric: &str) -> Option<f64> {
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(metric)?;
        let value = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.split_whitespace().next()?.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ms: u64, text: &str, began: Instant) -> Line {
        Line { at: began + Duration::from_millis(ms), text: text.into() }
    }

    #[test]
    fn lines_are_counted_from_the_first_to_the_last() {
        let (mut window, began) = (Window::default(), Instant::now());
        for step in 0..5 {
            assert_eq!(window.rate(&Source::Lines), None);
            window.line(&Source::Lines, None, &line(100 + step * 10, "", began)).unwrap();
        }
        assert!((window.rate(&Source::Lines).unwrap() - 100.0).abs() < 1e-6);
    }

    #[test]
    fn a_number_is_what_the_group_matches_and_nothing_else() {
        let samples = pattern("--rate", "samples/s: (\\S+)").unwrap();
        assert_eq!(number(&samples, "step 3, samples/s: 12.5").unwrap(), Some(12.5));
        assert_eq!(number(&samples, "loss 3").unwrap(), None);
        for text in ["samples/s: nan", "samples/s: -1", "samples/s: inf", "samples/s: fast"] {
            assert!(number(&samples, text).unwrap_err().message.contains("is no number"), "{text}");
        }
    }

    #[test]
    fn a_pattern_without_a_group_or_that_is_none_is_refused() {
        for text in ["samples", "samples ([0-9", "("] {
            let fault = pattern("--rate", text).unwrap_err();
            assert!(fault.exit == USAGE && fault.help.contains("--rate"), "{fault}");
        }
    }

    #[test]
    fn a_metric_is_summed_over_its_labels_and_not_over_its_namesakes() {
        let page = "# TYPE done_total counter\ndone_total{a=\"1\"} 3\ndone_total{a=\"} 2\"} 4.5 1700\ndone_total_x 9\n";
        assert_eq!(sum_of(page, "done_total"), Some(7.5));
        assert_eq!(sum_of(page, "done"), None);
    }

    /// A page that says something else each time it is asked.
    fn serve(pages: &'static [&'static str]) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for page in pages {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 1024];
                let _ = std::io::Read::read(&mut stream, &mut asked);
                let head =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", page.len());
                std::io::Write::write_all(&mut stream, (head + page).as_bytes()).unwrap();
            }
        });
        url
    }

    #[test]
    fn a_counter_is_read_by_its_growth_and_another_metric_by_its_value() {
        let url = serve(&["done_total 10\n", "done_total 30\n", "speed 7\n", "speed 8\n", "other 1\n"]);
        let source = |metric: &str| Source::Page { url: url.clone(), metric: metric.into() };
        let (mut counter, began) = (Window::default(), Instant::now());
        counter.page(&source("done_total")).unwrap();
        assert_eq!(counter.rate(&source("done_total")), None, "one look tells no growth");
        counter.page(&source("done_total")).unwrap();
        let rate = counter.rate(&source("done_total")).unwrap();
        assert!(rate >= 20.0 / began.elapsed().as_secs_f64(), "{rate}");
        let mut value = Window::default();
        value.page(&source("speed")).unwrap();
        value.page(&source("speed")).unwrap();
        assert_eq!(value.rate(&source("speed")), Some(7.5));
        let missing = value.page(&source("done_total")).unwrap_err();
        assert!(missing.message.contains("has no metric `done_total`"), "{missing}");
    }
}
