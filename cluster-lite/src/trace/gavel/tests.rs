use super::*;
use crate::data;

const TWO: &str = r#"{"v100": {
  "('A', 1)": {"null": 10.0, "('A', 1)": [5.0, 5.0], "('B (batch size 8)', 1)": [8.0, 2.0]},
  "('B (batch size 8)', 1)": {"null": 4, "('A', 1)": [2.0, 8.0], "('B (batch size 8)', 1)": [0.0, 0.0]}}}"#;

fn refused(text: &str) -> String {
    parse(text, "pairs.json").err().map(|fault| fault.to_string()).expect("it is wrong")
}

#[test]
fn a_slowdown_is_throughput_alone_over_throughput_beside() {
    let table = &parse(TWO, "pairs.json").unwrap()[0];
    assert_eq!(table.jobs[1], JobType { model: "B".into(), batch: Some(8), workers: 1 });
    assert_eq!(table.slowdown(0, 1), Some(1.25));
    assert_eq!(table.slowdown(1, 0), Some(2.0));
    assert_eq!(table.slowdown(1, 1), None, "[0, 0] was not measured");
    assert_eq!(table.pairs(), [(0, 0), (0, 1)]);
    assert_eq!(table.measured().len(), 3, "a job beside its like has one direction");
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let cases = [
        (TWO.replace("[8.0, 2.0]", "[-8.0, 2.0]"), "pairs.json:2:"),
        (TWO.replace("\"null\": 10.0", "\"null\": 1e300"), "pairs.json:2:"),
        (TWO.replace("\"null\": 4", "\"null\": -4"), "pairs.json:3:"),
        (TWO.replace("[0.0, 0.0]", "[0.0]"), "pairs.json:3:"),
        (TWO.replace("[0.0, 0.0]", "[0.0, 0.0, 0.0]"), "pairs.json:3:"),
        (TWO.replace("[0.0, 0.0]", "\"none\""), "pairs.json:3:"),
        (TWO.replace("\"null\": 10.0", "\"null\": 10.0, \"null\": 10.0"), "pairs.json:2:"),
        (TWO[..TWO.len() - 20].into(), "pairs.json:3:"),
        (TWO.replace("\"null\": 10.0, ", ""), "pairs.json: v100 / ('A', 1) / null"),
        (TWO.replace("[2.0, 8.0]", "[2.0, 7.0]"), "v100 / ('B (batch size 8)', 1) / ('A', 1)"),
        (TWO.replace("[8.0, 2.0]", "[8.0, 0.0]"), "v100 / ('A', 1) / ('B (batch size 8)', 1)"),
        (TWO.replace("\"('A', 1)\": [5.0", "\"('C', 1)\": [5.0"), "v100 / ('A', 1) / ('C', 1)"),
        (TWO.replace("('B (batch size 8)', 1)", "('B (batch size 0)', 1)"), "pairs.json: v100"),
        (TWO.replace("('A', 1)", "A"), "pairs.json: v100"),
        ("{}".into(), "pairs.json:1"),
        (String::new(), "pairs.json:1:0"),
    ];
    for (text, place) in cases {
        let told = refused(&text);
        assert!(told.contains(place) && told.contains("help: "), "{told}\n{text}");
    }
}

#[test]
fn the_published_tables_are_read_whole() {
    let Some(path) = data::find("gavel-colocation/simulation_throughputs.json") else { return };
    let tables = load(&path).unwrap();
    let counts: Vec<_> = tables.iter().map(|table| (table.device.as_str(), table.pairs().len())).collect();
    let v100 = tables.iter().find(|table| table.device == "v100").expect("V100 is among them");
    assert_eq!(v100.measured().len(), 636, "{counts:?}");
    assert!(
        v100.pairs().iter().all(|&(one, other)| v100.jobs[one].workers == 1 && v100.jobs[other].workers == 1)
    );
}
