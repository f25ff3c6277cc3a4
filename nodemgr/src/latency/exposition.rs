//! The lines of one metric in a page of Prometheus text, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! Our own reader: of the crates there, one knows no colon in a name and so none of vLLM's metrics, the others are not kept
//! or not under a licence that fits. What is not a line of this metric is passed over, so a mistake elsewhere on the page
//! does no harm.

use std::collections::BTreeMap;

/// Figures of one metric, all its label sets together.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Figures {
    /// Of a histogram: requests up to each bound, in the metric's unit; the last bound is infinite.
    pub buckets: Vec<(f64, f64)>,
    /// Of a summary: (quantile, value), the worst of the label sets.
    pub quantiles: Vec<(f64, f64)>,
}

/// Looks for `metric` on the page.
pub fn read(page: &str, metric: &str) -> Figures {
    let mut buckets: BTreeMap<Bound, f64> = BTreeMap::new();
    let mut quantiles: BTreeMap<Bound, f64> = BTreeMap::new();
    for line in page.lines() {
        let Some(rest) = line.trim_start().strip_prefix(metric) else { continue };
        let (rest, key) = match rest.strip_prefix("_bucket") {
            Some(rest) => (rest, "le"),
            None => (rest, "quantile"),
        };
        let Some((bound, value)) = rest.trim_start().strip_prefix('{').and_then(|rest| sample(rest, key))
        else {
            continue;
        };
        match key {
            "le" => *buckets.entry(Bound(bound)).or_default() += value,
            _ if value.is_finite() => {
                let worst = quantiles.entry(Bound(bound)).or_insert(value);
                *worst = worst.max(value);
            }
            _ => {}
        }
    }
    let listed = |map: BTreeMap<Bound, f64>| map.into_iter().map(|(bound, value)| (bound.0, value)).collect();
    Figures { buckets: listed(buckets), quantiles: listed(quantiles) }
}

/// A bound that sorts.
#[derive(PartialEq)]
struct Bound(f64);

impl Eq for Bound {}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// What follows an open brace: the label `key` as a number, and the sample's value.
fn sample(mut rest: &str, key: &str) -> Option<(f64, f64)> {
    let mut bound = None;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            let value = number(after.split_whitespace().next()?)?;
            return Some((bound?, value));
        }
        let (name, after) = rest.split_once('=')?;
        let (text, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        if name.trim() == key {
            bound = number(text);
        }
        rest = after;
    }
}

/// Up to the closing quote, behind which the rest begins. An escaped character stays as it is written: bounds have none.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return Some((&text[..at], &text[at + 1..])),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| !number.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As vLLM 0.6 writes it, two models, shortened.
    const VLLM: &str = r#"
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_sum{model_name="a"} 12.5
vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="a"} 10.0
vllm:time_to_first_token_seconds_bucket{le="0.25",model_name="a"} 30.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="a"} 40.0
vllm:time_to_first_token_seconds_bucket{model_name="b \"x}\" ,",le="0.1"} 1 1700000000000
vllm:time_to_first_token_seconds_bucket{model_name="b",le="+Inf"} 2
vllm:time_to_first_token_seconds_count{model_name="a"} 40.0
vllm:time_per_output_token_seconds_bucket{le="0.1",model_name="a"} 99.0
"#;

    #[test]
    fn buckets_of_all_label_sets_add_up_and_other_metrics_are_left_out() {
        let figures = read(VLLM, "vllm:time_to_first_token_seconds");
        assert_eq!(figures.buckets, [(0.1, 11.0), (0.25, 30.0), (f64::INFINITY, 42.0)]);
        assert!(figures.quantiles.is_empty());
    }

    #[test]
    fn of_a_summary_the_worst_label_set_counts() {
        let triton = "nv_inference_request_summary_us{model=\"a\",quantile=\"0.95\"} 700\n\
                      nv_inference_request_summary_us{model=\"b\",quantile=\"0.95\"} 900\n\
                      nv_inference_request_summary_us{model=\"c\",quantile=\"0.95\"} Nan\n\
                      nv_inference_request_summary_us_count{model=\"a\"} 5\n";
        assert_eq!(read(triton, "nv_inference_request_summary_us").quantiles, [(0.95, 900.0)]);
    }

    proptest! {
        #[test]
        fn no_page_harms_the_reader(page in "(a_s(_bucket)?[{}\",=le0-9. \\\\+\n]{0,30}){0,8}") {
            let _ = read(&page, "a_s");
        }
    }
}
