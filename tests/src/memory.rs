//! `weir-memory` as a story drives it.

use crate::obeying::Answer;
use crate::program::{Finished, Program, Running};

/// A client that runs.
pub struct Memory {
    running: Running,
    /// The process that holds the memory.
    pub pid: i32,
}

impl Memory {
    /// Starts it and waits for its context.
    ///
    /// # Panics
    /// If it gets none.
    pub fn start(program: Program) -> Self {
        let (memory, result) = Self::try_start(program);
        assert_eq!(result, "CUDA_SUCCESS", "the first context");
        memory
    }

    /// Starts it, and says how its first context came about.
    ///
    /// # Panics
    /// If it cannot use the driver.
    pub fn try_start(program: Program) -> (Self, String) {
        let mut memory = Self { running: program.start(), pid: 0 };
        let answer = memory.hear();
        memory.pid = i32::try_from(answer.pid).expect("process ids fit");
        (memory, answer.result)
    }

    fn hear(&mut self) -> Answer {
        let Some(line) = self.running.next_line() else { panic!("the client ended before its time") };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Tells it something, and returns what came of it.
    pub fn tell(&mut self, line: &str) -> Answer {
        self.running.say(line);
        self.hear()
    }

    /// Tells it something that takes a while; [`Self::ended`] says what came of it.
    pub fn begin(&mut self, line: &str) {
        self.running.say(line);
    }

    /// What came of the line that was begun.
    pub fn ended(&mut self) -> Answer {
        self.hear()
    }

    /// Tells it something that must succeed; returns the first number that the driver gave out, or 0.
    ///
    /// # Panics
    /// If it fails.
    pub fn does(&mut self, line: &str) -> u64 {
        let answer = self.tell(line);
        assert_eq!(answer.result, "CUDA_SUCCESS", "{line}");
        answer.values.first().copied().unwrap_or(0)
    }

    /// Free memory as the driver tells it, in bytes.
    pub fn free_bytes(&mut self) -> u64 {
        self.does("info")
    }

    /// Lets it end.
    pub fn finish(self) -> Finished {
        self.running.finish()
    }
}
