//! One page over HTTP, with a deadline and a longest length.

use std::io::Read;
use std::time::Duration;

use super::message::{Found, Wanted};
use crate::latency::exposition;
use crate::signals;

/// Longest that one answer may take: as long as the time between two questions.
const DEADLINE: Duration = Duration::from_secs(1);

/// Longest page that is read: vLLM's have some tens of KiB.
const MAX_PAGE: u64 = 4 << 20;

/// One client for all: plain HTTP, no redirect to somewhere else, no proxy from the environment.
pub fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_global(Some(DEADLINE)).max_redirects(0).proxy(None);
    config.build().new_agent()
}

/// What is wanted of the page at `url`, or why it cannot be had.
pub fn find(agent: &ureq::Agent, url: &str, wanted: &Wanted) -> Result<Found, String> {
    let page = page(agent, url)?;
    match wanted {
        Wanted::Metric(metric) => Ok(Found::Figures(exposition::read(&page, metric))),
        Wanted::Number => signals::number(&page).map(Found::Number),
    }
}

fn page(agent: &ureq::Agent, url: &str) -> Result<String, String> {
    let answer = agent.get(url).call().map_err(|error| error.to_string())?;
    if answer.status() != 200 {
        return Err(format!("it answers with status {}", answer.status()));
    }
    let mut page = Vec::new();
    let body = answer.into_body().into_reader();
    body.take(MAX_PAGE + 1).read_to_end(&mut page).map_err(|error| error.to_string())?;
    if page.len() as u64 > MAX_PAGE {
        return Err(format!("its page is longer than {MAX_PAGE} bytes"));
    }
    String::from_utf8(page).map_err(|_| "its page is not UTF-8".into())
}
