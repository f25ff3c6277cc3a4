//! The file as it must be, and every way in which it may not be.

use std::path::Path;

use weir_protocol::units::SmShare;

use super::read::LARGEST;
use super::*;
use crate::fault::{CONFIG, Fault};

/// The example at the top of this file, which is what its readers go by.
fn example() -> String {
    let lines = include_str!("../file.rs").lines().map_while(|line| line.strip_prefix("//!"));
    let code = lines.skip_while(|line| *line != " ```toml").skip(1).take_while(|line| *line != " ```");
    code.map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n").collect()
}

fn parse(text: &str) -> Result<Profile, Fault> {
    Profile::parse(text, Path::new("a.toml"))
}

/// What is said of the example with `line` in place of the line that begins with `begin`.
#[track_caller]
fn refused(begin: &str, line: &str) -> Fault {
    let example = example();
    let at = example.lines().position(|line| line.starts_with(begin)).expect(begin);
    let text: Vec<_> =
        example.lines().enumerate().map(|(number, old)| if number == at { line } else { old }).collect();
    let fault = parse(&text.join("\n")).expect_err(line);
    let named = format!("a.toml:{}", at + 1);
    assert_eq!((fault.at.as_deref(), fault.exit), (Some(named.as_str()), CONFIG), "{fault}");
    fault
}

#[test]
fn the_example_reads_back_as_it_is_written() {
    let profile = parse(&example()).unwrap();
    let text = profile.to_text().unwrap();
    assert_eq!(parse(&text).unwrap(), profile, "{text}");
    assert!(text.contains("request = \"30%\"") && text.contains("memory = \"5GiB\""), "{text}");
}

#[test]
fn a_misspelt_word_is_refused_where_it_stands_with_the_nearest_one() {
    assert_eq!(refused("request", "reqest = \"30%\"").help, "did you mean `request`?");
    assert_eq!(refused("kind", "kind = \"trainig\"").help, "did you mean `training`?");
    assert_eq!(refused("host = ", "hosts = 0.25").help, "did you mean `host`?");
    assert!(refused("gpu_ms", "colour = 3").help.starts_with("choose from: unit, alone"));
}

#[test]
fn values_that_cannot_be_are_refused_where_they_stand() {
    for (begin, line) in [
        ("request", "request = \"101%\""),
        ("request", "request = 30"),
        ("request", "request = \"0.3\""),
        ("limit", "limit = \"-1%\""),
        ("memory", "memory = \"-1G\""),
        ("memory", "memory = \"5Q\""),
        ("alone", "alone = nan"),
        ("alone", "alone = inf"),
        ("alone", "alone = 0.0"),
        ("at_request", "at_request = -1.0"),
        ("at_request", "at_request = 1e300"),
        ("batch", "batch = 0"),
        ("batch", "batch = 1.5"),
        ("slo", "slo = \"p100 < 1ms\""),
        ("compute", "compute = 1.01"),
        ("sensitivity", "sensitivity = -0.1"),
        ("date", "date = \"2026-13-01\""),
        ("date", "date = \"yesterday\""),
        ("confidence", "confidence = 95"),
        ("deviation", "deviation = -1.0"),
    ] {
        refused(begin, line);
    }
}

#[test]
fn values_that_contradict_each_other_are_refused_with_the_line_of_one() {
    assert!(refused("limit", "limit = \"20%\"").message.contains("lies below the request"));
    assert!(refused("request", "request = \"0%\"").message.contains("kind inference is 0 %"));
    assert!(refused("at_request", "at_request = 700.0").message.contains("passes the one"));
    assert!(refused("latency_ms", "latency_ms = 40.1").message.contains("misses its own SLO"));
    assert!(refused("bubble", "bubble = 0.4").message.contains("more than the time without a kernel"));
    assert!(refused("name", "name = \" \"").message.contains("name is empty"));
    let sum = example().replace("host = 0.25", "host = 0.5");
    assert!(parse(&sum).unwrap_err().message.contains("sum to 1.250"));
}

#[test]
fn what_belongs_to_one_kind_is_refused_with_another() {
    assert!(
        parse(&example().replace("\"inference\"", "\"training\""))
            .unwrap_err()
            .message
            .contains("has [inference]")
    );
    let without: String = example().lines().map(|line| line.to_owned() + "\n").collect::<String>();
    let (before, rest) = without.split_once("[inference]").unwrap();
    let text = format!("{before}[copies]{}", rest.split_once("[copies]").unwrap().1);
    assert!(parse(&text).unwrap_err().message.contains("has no [inference]"));
    let filler = text.replace("\"inference\"", "\"filler\"").replace("request = \"30%\"", "request = \"0%\"");
    assert_eq!(parse(&filler).unwrap().request, SmShare::ZERO);
}

#[test]
fn another_version_is_told_as_such() {
    let newer = format!("{}\n[new]\nkey = 1\n", example().replace("version = 1", "version = 2"));
    let fault = parse(&newer).unwrap_err();
    assert_eq!(fault.at.as_deref(), Some("a.toml:1"));
    assert!(fault.message.contains("version 2, and this build reads 1"), "{fault}");
}

#[test]
fn a_key_twice_or_missing_and_a_file_cut_short_are_refused() {
    let twice = example().replace("batch = 16\n", "batch = 16\nbatch = 4\n");
    assert!(parse(&twice).is_err());
    assert!(
        parse(&example().replace("limit = ", "# ")).unwrap_err().message.contains("missing field `limit`")
    );
    let whole = example();
    // Until the probes, which may be fewer, no beginning of a file is a profile.
    let end = whole.find("[[measured.probe]]").unwrap();
    for cut in (0..whole.find("confidence").unwrap()).step_by(7).filter(|cut| *cut < end) {
        assert!(parse(&whole[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn a_file_that_is_missing_a_directory_or_not_text_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.toml");
    assert!(Profile::read(&path).unwrap_err().message.contains("p.toml` cannot be read"));
    assert!(Profile::read(dir.path()).is_err());
    std::fs::write(&path, b"version = 1\nname = \"\xff\"").unwrap();
    assert_eq!(Profile::read(&path).unwrap_err().at, Some(format!("{}:2", path.display())));
    std::fs::write(&path, vec![b'#'; usize::try_from(LARGEST + 1).unwrap()]).unwrap();
    assert!(Profile::read(&path).unwrap_err().message.contains("bytes"));
}

#[test]
fn a_file_that_cannot_be_read_back_is_not_written_and_the_old_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.toml");
    let profile = parse(&example()).unwrap();
    profile.write(&path).unwrap();
    let wrong = Profile { limit: SmShare::ZERO, ..profile.clone() };
    assert!(wrong.write(&path).is_err());
    assert_eq!(Profile::read(&path).unwrap(), profile);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
}
