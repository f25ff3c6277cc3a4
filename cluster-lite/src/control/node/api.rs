//! The public API of a node manager, by its control socket or by `weir web`: one request, one answer, within a bounded time.

use std::path::PathBuf;
use std::time::Duration;

use weir_nodemgr::control::Client;
use weir_nodemgr::control::schema::{Request, Response};
use weir_nodemgr::place::Place;

use crate::control::config::{ManagerAt, Reach};
use crate::fault::{Fault, UNREACHABLE};

/// Longest wait for an answer; parking takes its own time.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same for parking: a full card goes over the bus.
const PARK_PATIENCE: Duration = Duration::from_secs(120);

/// Longest answer, in bytes.
const MAX_ANSWER: u64 = 64 << 20;

/// Where to ask.
#[derive(Clone, Debug)]
pub enum Api {
    /// This machine's node manager.
    Socket(Place),
    /// Another's, through `weir web`.
    Web {
        /// Without a slash at its end.
        url: String,
        /// The file with the token: read anew each time, so that it may be changed.
        token_file: PathBuf,
    },
}

/// The API of a node.
///
/// # Errors
/// Its directory cannot be one.
pub fn api(reach: &Reach) -> Result<Api, Fault> {
    match &reach.manager {
        ManagerAt::Socket(dir) => Place::at(dir).map(Api::Socket).map_err(ours),
        ManagerAt::Web { url, token_file } => {
            Ok(Api::Web { url: url.trim_end_matches('/').to_owned(), token_file: token_file.clone() })
        }
    }
}

impl Api {
    /// Asks.
    ///
    /// # Errors
    /// The manager's refusal, or [`UNREACHABLE`]: then nobody knows whether it was done.
    pub fn ask(&self, request: &Request) -> Result<Response, Fault> {
        match self {
            Self::Socket(place) => {
                let mut client = Client::connect(place).map_err(ours)?;
                match request {
                    Request::Park { tenant } => client.park(tenant).map(Response::Parked).map_err(ours),
                    Request::Unpark { tenant } => client.unpark(tenant).map(Response::Parked).map_err(ours),
                    other => client.ask(other).map_err(ours),
                }
            }
            Self::Web { url, token_file } => over_http(url, token_file, request),
        }
    }
}

fn over_http(url: &str, token_file: &PathBuf, request: &Request) -> Result<Response, Fault> {
    let lost = |what: String| {
        Fault::new(format!("`{url}` {what}"), "look whether `weir web` runs there, with --allow-set")
            .exit(UNREACHABLE)
    };
    let token = std::fs::read_to_string(token_file)
        .map_err(|error| lost(format!("needs the token in `{}`: {error}", token_file.display())))?;
    let token = token.lines().next().unwrap_or_default().trim().to_owned();
    let parks = matches!(request, Request::Park { .. } | Request::Unpark { .. });
    let patience = if parks { PARK_PATIENCE } else { PATIENCE };
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(patience))
        .http_status_as_error(false)
        .build()
        .new_agent();
    let body = serde_json::to_vec(request).map_err(|error| lost(error.to_string()))?;
    let answer = agent
        .post(format!("{url}/v1/do"))
        .header("Authorization", format!("Bearer {token}"))
        .header("Content-Type", "application/json")
        .send(&body[..]);
    let mut answer = answer.map_err(|error| lost(format!("does not answer: {error}")))?;
    let text = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
    let text = text.map_err(|error| lost(format!("breaks off: {error}")))?;
    match serde_json::from_str(&text) {
        Ok(Response::Error(fault)) => Err(ours(fault)),
        Ok(response) => Ok(response),
        Err(error) => Err(lost(format!("is not understood: {error}"))),
    }
}

/// A node manager's fault as one of this crate.
fn ours(fault: weir_nodemgr::Fault) -> Fault {
    let exit = fault.exit_code();
    Fault { message: format!("{} ({})", fault.message, fault.code), at: fault.at, help: fault.help, exit }
}
