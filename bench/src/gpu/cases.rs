//! A case of the duels, from either of the forms in which they lie in results: one line each, with a title in words
//! (`"case": "flood x2, weir 70/30"`), or with fields (`"part": "duel"`).

use serde_json::{Map, Value};

/// Programs at work at once, and what each of them got.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// How they share the card, in words: `plain`, `70/30, weir`.
    pub way: String,
    /// In the order in which the way names them.
    pub players: Vec<Player>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Player {
    /// Its work.
    pub work: String,
    /// Who it was: `bare1`, `a`.
    pub role: String,
    /// Units a second, or of a server the p99 of its requests in milliseconds; absent if it gave no answer.
    pub got: Option<Got>,
}

/// The one figure of a work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Got {
    /// Units a second.
    PerSecond(f64),
    /// A server's.
    P99Ms(f64),
}

impl Got {
    /// As it stands.
    pub const fn value(self) -> f64 {
        match self {
            Self::PerSecond(value) | Self::P99Ms(value) => value,
        }
    }

    /// How far it gets by this figure of what it gets by `whole`, in percent: of latencies the reverse.
    pub fn percent_of(self, whole: Self) -> f64 {
        match (self, whole) {
            (Self::P99Ms(mine), _) => 100.0 * whole.value() / mine,
            (Self::PerSecond(mine), _) => 100.0 * mine / whole.value(),
        }
    }
}

impl Case {
    /// Of a line that is one.
    pub fn of(line: &Map<String, Value>) -> Option<Self> {
        match line.get("case") {
            Some(title) => Self::titled(title.as_str()?, line),
            None => Self::with_fields(line),
        }
    }

    /// Whether a single program was measured by itself.
    pub fn is_alone(&self) -> bool {
        self.players.len() == 1
    }

    /// Whether Weir had no part in it, and nobody else either.
    pub fn is_plain(&self) -> bool {
        self.players.iter().all(|player| player.role.starts_with("bare"))
            && !self.way.to_lowercase().contains("mps")
    }

    /// Whether both are of the same programs.
    pub fn same_works(&self, other: &Self) -> bool {
        let works = |case: &Self| case.players.iter().map(|player| player.work.clone()).collect::<Vec<_>>();
        works(self) == works(other)
    }

    /// The requests of its tenants in percent, where the way names them.
    pub fn requests_percent(&self) -> Option<Vec<f64>> {
        let shares = self.way.split([' ', ',']).find(|word| word.contains('/'))?;
        shares.split('/').map(|share| share.parse().ok()).collect()
    }

    /// `flood x2, weir 70/30`; `server p99 < 6 ms + flood, weir latency + filler`; `replay alone, bare1`.
    fn titled(title: &str, line: &Map<String, Value>) -> Option<Self> {
        let (works, way) = title.split_once(", ").unwrap_or((title, title));
        let promise = works.find(" p99 < ").map(|at| works[at..].split(" + ").next().unwrap_or_default());
        let way = format!("{way}{}", promise.map(|promise| format!(",{promise}")).unwrap_or_default());
        let answers = line.iter().filter(|(name, _)| *name != "case");
        let mut players: Vec<Player> =
            answers.filter_map(|(role, answer)| Player::of(role, answer)).collect();
        players.sort_by_key(|player| works.find(&player.work)); // stable: of equal works by their roles
        (!players.is_empty()).then_some(Self { way, players })
    }

    fn with_fields(line: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| line.get(name).and_then(Value::as_str);
        match text("part")? {
            "duel" => {
                let by = text("by").filter(|by| *by != "plain").map(|by| format!(", {by}"));
                let answers = line.get("answers")?.as_array()?;
                let player = |answer: &Value| Player::of(answer["role"].as_str()?, answer);
                let players = answers.iter().map(player).collect::<Option<Vec<_>>>()?;
                Some(Self { way: format!("{}{}", text("way")?, by.unwrap_or_default()), players })
            }
            "alone" => {
                let players = vec![Player::of("bare1", line.get("answer")?)?];
                Some(Self { way: String::new(), players })
            }
            _ => None,
        }
    }
}

impl Player {
    fn of(role: &str, answer: &Value) -> Option<Self> {
        let number = |name: &str| answer.get(name).and_then(Value::as_f64);
        let rate = number("per_s").map(Got::PerSecond);
        let got = answer.get("requests").and(number("p99_ms")).map(Got::P99Ms).or(rate);
        Some(Self { work: answer.get("work")?.as_str()?.into(), role: role.into(), got })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case(value: &Value) -> Option<Case> {
        Case::of(value.as_object()?)
    }

    #[test]
    fn both_forms_of_a_case_say_the_same() {
        let flood = |per_s: f64| json!({"work": "flood", "per_s": per_s});
        let titled =
            case(&json!({"case": "flood x2, weir 70/30", "a": flood(411.5), "b": flood(175.3)})).unwrap();
        let with_role = |role, per_s: f64| json!({"role": role, "work": "flood", "per_s": per_s});
        let answers = [with_role("a", 411.5), with_role("b", 175.3)];
        let fields =
            case(&json!({"part": "duel", "way": "70/30", "by": "weir", "answers": answers})).unwrap();
        assert_eq!(titled.players, fields.players);
        assert_eq!(
            (titled.requests_percent(), fields.requests_percent()),
            (Some(vec![70.0, 30.0]), Some(vec![70.0, 30.0]))
        );
        assert!(!titled.is_plain() && !titled.is_alone() && titled.same_works(&fields));
    }

    #[test]
    fn players_stand_as_the_title_names_them_and_a_server_has_its_p99() {
        let server = json!({"work": "server", "requests": 490, "p50_ms": 2.3, "p99_ms": 6.1});
        let line = json!({"case": "server p99 < 6 ms + flood, weir latency + filler", "f": {"work": "flood", "per_s": 166.0}, "s": server});
        let case = case(&line).unwrap();
        assert_eq!(case.way, "weir latency + filler, p99 < 6 ms");
        assert_eq!(case.players[0].got, Some(Got::P99Ms(6.1)));
        assert_eq!((case.players[1].role.as_str(), case.requests_percent()), ("f", None));
    }

    #[test]
    fn who_gave_no_answer_has_none_and_other_lines_are_no_cases() {
        let answers = json!([{"role": "a", "work": "train", "trouble": "no answer"}]);
        let silent =
            case(&json!({"part": "duel", "way": "plain", "by": "plain", "answers": answers})).unwrap();
        assert_eq!((silent.players[0].got, silent.way.as_str()), (None, "plain"));
        for line in
            [json!({"started": ["bare1"]}), json!({"case": "x"}), json!({"part": "probe", "answer": {}})]
        {
            assert_eq!(case(&line), None, "{line}");
        }
    }

    #[test]
    fn a_rate_and_a_latency_are_compared_in_the_same_sense() {
        assert_eq!(Got::PerSecond(30.0).percent_of(Got::PerSecond(60.0)), 50.0);
        assert_eq!(Got::P99Ms(6.0).percent_of(Got::P99Ms(3.0)), 50.0, "twice as late is half as good");
    }
}
