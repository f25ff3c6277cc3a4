//! `weir-cluster`, asked one thing by its command line.

use std::process::{Command, Output};

use serde_json::Value;

use crate::dist::Dist;

fn asked(arguments: &[&str]) -> Output {
    Command::new(Dist::find().cluster()).args(arguments).output().expect("weir-cluster starts")
}

/// The one document that it answers.
///
/// # Panics
/// If it refuses, or prints something else.
#[track_caller]
pub fn told(arguments: &[&str]) -> Value {
    let asked = asked(arguments);
    assert!(asked.status.success(), "{arguments:?}: {asked:?}");
    serde_json::from_slice(&asked.stdout).expect("one JSON document")
}

/// What it says to people on stdout.
///
/// # Panics
/// If it refuses.
#[track_caller]
pub fn said(arguments: &[&str]) -> String {
    let asked = asked(arguments);
    assert!(asked.status.success(), "{arguments:?}: {asked:?}");
    String::from_utf8_lossy(&asked.stdout).into_owned()
}

/// It ends with this code, says what is wrong with each of these words, and what to do about it.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn assert_refused(arguments: &[&str], code: i32, words: &[&str]) {
    let asked = asked(arguments);
    let said = String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(words.iter().chain(&["error", "help: "]).all(|word| said.contains(word)), "{said}");
}
