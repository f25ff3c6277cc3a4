//! The card by itself: of each answer of the probe its median or its sum, under what it was asked.

use serde_json::{Map, Value};

use super::Lines;

/// A figure: its name, the fields of an answer that say what it is of (none where it is asked once), and the field with the value (`a.b`: within `a`).
const FIGURES: [(&str, &[&str], &str); 16] = [
    ("slice_us", &["slices"], "run_us.p50"),
    ("switch_us", &["slices"], "switch_us.p50"),
    ("useful_percent", &["slices"], "useful_percent"),
    ("units_sum_percent", &["contexts", "unit_us"], "sum_percent"),
    ("turns_useful_percent", &["turn_us", "lead_units", "wait"], "useful_percent"),
    ("turns_handover_us", &["turn_us", "lead_units", "wait"], "handover_us.p50"),
    ("handover_us", &["handover"], "us.p50"),
    ("kernels_2000_us", &["beside"], "kernels_2000_us"),
    ("newcomer_wait_us", &["filler_unit_us", "guest_us", "pause_us"], "wait_us.p50"),
    ("host_call_us", &["host_call"], "us.p50"),
    ("gpu_each_us", &["gpu_each_us", "kernel_us", "every"], "us.p50"),
    ("open_wait_each_us", &["open_wait", "kernel_us", "every"], "each_us.p50"),
    ("begun_after_closing", &["closed", "kernel_us"], "kernels_that_began_after.p50"),
    ("between_pieces_us", &["pieces"], "between_pieces_us.p50"),
    ("beside_blocked_us", &["blocked_contexts", "streams_each"], "total_us"),
    ("queue_depth_launches", &[], "queue_depth_launches"),
];

/// All of them that were answered, each as a table from what was asked to the value; of an answer given twice the later one.
pub fn figures(files: &[Lines]) -> Map<String, Value> {
    let mut figures = Map::new();
    for answer in files.iter().flat_map(|file| &file.answers) {
        for (name, of, at) in FIGURES {
            let Some(value) = field(answer, at) else { continue };
            let Some(label) = label(answer, of) else { continue };
            if of.is_empty() {
                figures.insert(name.into(), value.clone());
                continue;
            }
            let table = figures.entry(name).or_insert_with(|| Value::Object(Map::new()));
            table[label.as_str()] = value.clone();
        }
    }
    figures
}

fn field<'a>(answer: &'a Map<String, Value>, at: &str) -> Option<&'a Value> {
    let mut path = at.split('.');
    let first = answer.get(path.next()?)?;
    path.try_fold(first, |value, name| value.get(name)).filter(|value| value.is_number())
}

/// What an answer is of: its texts as they are, its numbers with their names. Absent where a field is.
fn label(answer: &Map<String, Value>, of: &[&str]) -> Option<String> {
    let part = |name: &&str| match answer.get(*name)? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) => Some((*name).to_owned()),
        value => Some(format!("{name} {value}")),
    };
    Some(of.iter().map(part).collect::<Option<Vec<_>>>()?.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_answer_goes_under_what_was_asked() {
        let answer = |value: Value| value.as_object().cloned().unwrap();
        let open = |kind, p50: f64| {
            answer(
                json!({"open_wait": kind, "every": 1, "kernel_us": 10, "each_us": {"p50": p50}, "call_us": {"p50": 1}}),
            )
        };
        let odd = answer(json!({"streams_held_up_by_a_blocked_one": 0}));
        let figures = figures(&[Lines { answers: vec![open("no wait", 12.1), open("a word", 14.4), odd] }]);
        let expected = json!({"open_wait_each_us": {"no wait, kernel_us 10, every 1": 12.1, "a word, kernel_us 10, every 1": 14.4}});
        assert_eq!(Value::Object(figures), expected);
    }
}
