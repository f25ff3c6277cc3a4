//! Questions that wait, and those that are asked. Who waited longest is asked first, and never so many are asked at once that
//! the process could be overrun: pages that hang leave room for the others.

use std::collections::{HashMap, VecDeque};

use weir_protocol::units::Nanos;

use super::message::{Question, Wanted};

/// Questions at once, each a thread of the process, and at most a page in its memory.
const AT_ONCE: usize = 32;

/// Longest that the process may take for one answer: its own deadline is a second.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// A tenant's, by its number.
    Tenant(u64),
    /// A signal's, by its place in the configuration.
    Signal(usize),
}

/// All questions without an answer.
#[derive(Default)]
pub struct Queue {
    waiting: VecDeque<(Whose, Question)>,
    asked: HashMap<u64, (Whose, Nanos)>,
    /// Since when each has had no answer; it stays over a loss of the process.
    since: HashMap<Whose, Nanos>,
    last: u64,
}

impl Queue {
    /// Adds a question about `whose` page, unless there is one already.
    pub fn add(&mut self, whose: Whose, url: &str, wanted: Wanted, now: Nanos) {
        let waits = self.waiting.iter().any(|(known, _)| *known == whose);
        if waits || self.asked.values().any(|(known, _)| *known == whose) {
            return;
        }
        self.last += 1;
        self.since.entry(whose).or_insert(now);
        self.waiting.push_back((whose, Question { number: self.last, url: url.into(), wanted }));
    }

    /// The next question, if one more may be asked now.
    pub fn next(&self) -> Option<&Question> {
        let (_, question) = self.waiting.front()?;
        (self.asked.len() < AT_ONCE).then_some(question)
    }

    /// The next question has been asked.
    pub fn note_asked(&mut self, now: Nanos) {
        if let Some((whose, question)) = self.waiting.pop_front() {
            self.asked.insert(question.number, (whose, now));
        }
    }

    /// The next question cannot be asked: whose it was.
    pub fn drop_next(&mut self) -> Option<Whose> {
        let (whose, _) = self.waiting.pop_front()?;
        self.since.remove(&whose);
        Some(whose)
    }

    /// A question is answered: whose it was, if it was asked at all.
    pub fn note_answered(&mut self, number: u64) -> Option<Whose> {
        let (whose, _) = self.asked.remove(&number)?;
        self.since.remove(&whose);
        Some(whose)
    }

    /// Nobody will answer what was asked: it is asked again with the next round.
    pub fn forget_asked(&mut self) {
        self.asked.clear();
    }

    /// What `is_wanted` no longer has no answer to wait for.
    pub fn retain(&mut self, is_wanted: impl Fn(Whose) -> bool) {
        self.waiting.retain(|(whose, _)| is_wanted(*whose));
        self.since.retain(|whose, _| is_wanted(*whose));
    }

    /// Whether somebody waits for an answer, or for his question.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.asked.is_empty()
    }

    /// Whether an answer is overdue: the process itself hangs.
    pub fn is_overdue(&self, now: Nanos) -> bool {
        self.asked.values().any(|(_, at)| now.since(*at) > PATIENCE)
    }

    /// Who has had no answer for so long.
    pub fn unanswered_for(&self, long: Nanos, now: Nanos) -> Vec<Whose> {
        let late = self.since.iter().filter(|(_, since)| now.since(**since) > long);
        late.map(|(whose, _)| *whose).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(1);

    fn full(questions: usize) -> Queue {
        let mut queue = Queue::default();
        (0..questions).for_each(|n| queue.add(Whose::Signal(n), "http://a/", Wanted::Number, NOW));
        queue
    }

    /// Asks all that may be asked, and says their numbers.
    fn ask(queue: &mut Queue) -> Vec<u64> {
        std::iter::from_fn(|| {
            let number = queue.next()?.number;
            queue.note_asked(NOW);
            Some(number)
        })
        .collect()
    }

    #[test]
    fn who_waited_longest_is_asked_first_and_only_so_many_at_once() {
        let mut queue = full(AT_ONCE + 2);
        let first: Vec<u64> = (1..=AT_ONCE as u64).collect();
        assert_eq!(ask(&mut queue), first);
        assert_eq!(queue.note_answered(5), Some(Whose::Signal(4)));
        queue.add(Whose::Signal(4), "http://a/", Wanted::Number, NOW);
        assert_eq!(
            ask(&mut queue),
            [AT_ONCE as u64 + 1],
            "the room that one answer makes, and not for itself"
        );
        assert_eq!(queue.note_answered(5), None, "it was answered before");
        assert_eq!(queue.note_answered(1_000), None, "nobody has asked it");
    }

    #[test]
    fn nobody_is_asked_twice_at_once_and_everybody_again_when_the_process_is_lost() {
        let mut queue = full(1);
        queue.add(Whose::Signal(0), "http://a/", Wanted::Number, NOW);
        assert_eq!(ask(&mut queue), [1]);
        queue.add(Whose::Signal(0), "http://a/", Wanted::Number, NOW);
        assert_eq!(ask(&mut queue), [0; 0]);
        queue.forget_asked();
        let later = Nanos(NOW.0 + 1);
        queue.add(Whose::Signal(0), "http://a/", Wanted::Number, later);
        assert_eq!(ask(&mut queue), [2]);
        assert_eq!(queue.unanswered_for(Nanos(0), later), [Whose::Signal(0)], "since the first time");
        assert_eq!(queue.note_answered(1), None, "an answer of the one before");
    }

    #[test]
    fn an_answer_that_does_not_come_is_overdue_and_what_is_not_wanted_is_forgotten() {
        let mut queue = full(2);
        let late = Nanos(NOW.0 + PATIENCE.0 + 1);
        assert!(!queue.is_overdue(late), "nobody has been asked");
        assert_eq!(ask(&mut queue).len(), 2);
        assert!(!queue.is_overdue(NOW) && queue.is_overdue(late));
        queue.retain(|whose| whose == Whose::Signal(0));
        assert_eq!(queue.unanswered_for(PATIENCE, late), [Whose::Signal(0)]);
    }
}
