//! From a request of HTTP to one of the control socket, and back.

use hyper::{Method, StatusCode};

use super::metrics;
use crate::codes;
use crate::control::history::AskEvents;
use crate::control::policy::AskPolicy;
use crate::control::schema::{self, Request, Response};
use crate::control::{AskStats, Client};
use crate::fault::Fault;
use crate::place::Place;

/// What somebody wants.
#[derive(Debug, PartialEq)]
pub enum Wanted {
    /// The page of metrics, for everybody.
    Metrics,
    /// An answer of the control socket, for whoever has the token.
    Answer(Box<Request>),
    /// An answer to the body, which is to be read.
    Do,
    /// Nothing that there is.
    Nothing,
    /// Something that there is, by another method.
    OtherMethod,
}

/// What a request is about.
pub fn wanted(method: &Method, path: &str, query: Option<&str>) -> Wanted {
    let get =
        |request| if method == Method::GET { Wanted::Answer(Box::new(request)) } else { Wanted::OtherMethod };
    match path {
        "/metrics" if method == Method::GET => Wanted::Metrics,
        "/metrics" => Wanted::OtherMethod,
        "/v1/stats" => get(Request::Stats(AskStats::default())),
        "/v1/policy" => get(Request::Policy(AskPolicy::default())),
        "/v1/events" => match after(query) {
            Some(after) => get(Request::Events(AskEvents { after, wait: false })),
            None => Wanted::Nothing,
        },
        "/v1/do" if method == Method::POST => Wanted::Do,
        "/v1/do" => Wanted::OtherMethod,
        _ => match path.strip_prefix("/v1/why/") {
            Some(tenant) if !tenant.is_empty() => get(Request::Why { tenant: tenant.to_owned() }),
            _ => Wanted::Nothing,
        },
    }
}

/// `after=N` and nothing else; nothing at all is 0.
fn after(query: Option<&str>) -> Option<u64> {
    query.map_or(Some(0), |query| query.strip_prefix("after=")?.parse().ok())
}

/// Whether the request may go on to the control socket.
///
/// # Errors
/// It would change something and may not, or needs a connection that stays.
pub fn permit(request: &Request, allow_set: bool) -> Result<(), Fault> {
    let changes = match request {
        Request::Stats(_) | Request::Why { .. } => false,
        Request::Events(asked) if asked.wait => {
            let help = "ask again with the number that came as `last`";
            return Err(Fault::new(&codes::WEB, "nobody waits for events over HTTP", help));
        }
        Request::Events(_) => false,
        Request::Policy(asked) => asked.name.is_some(),
        Request::Set(change) => !change.dry_run,
        Request::Switch { .. } | Request::Park { .. } | Request::Unpark { .. } => true,
        Request::Create(_) => {
            let help = "start a program with `weir run`, or put the tenant into weir.toml";
            let message = "a tenant lives as long as the connection that made it, and this one ends";
            return Err(Fault::new(&codes::WEB, message, help));
        }
    };
    if changes && !allow_set {
        let help = "start it with --allow-set, if whoever has the token may change budgets";
        return Err(Fault::new(&codes::NOT_ALLOWED, "this `weir web` only reads", help));
    }
    Ok(())
}

/// The request in the body of a POST.
///
/// # Errors
/// [`codes::PROTOCOL`].
pub fn parse(body: &[u8]) -> Result<Request, Fault> {
    schema::parse(body)
}

/// Asks the node manager; waits for it.
pub fn ask(place: &Place, request: &Request) -> (StatusCode, String) {
    let answer = Client::connect(place).and_then(|mut client| client.ask(request));
    match answer {
        Ok(response) => (StatusCode::OK, json(&response)),
        Err(fault) => refusal(fault),
    }
}

/// The page of metrics; waits for the node manager.
pub fn metrics(place: &Place) -> (StatusCode, String) {
    let stats = Client::connect(place).and_then(|mut client| client.stats());
    match stats.map(|stats| metrics::page(&stats)) {
        Ok(Ok(page)) => (StatusCode::OK, page),
        Ok(Err(_)) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        Err(fault) => refusal(fault),
    }
}

/// A fault as an answer: the same JSON as on the control socket, under the status that fits its exit code.
pub fn refusal(fault: Fault) -> (StatusCode, String) {
    let status = match (fault.code.as_str(), fault.exit_code()) {
        (code, _) if code == codes::TENANT_UNKNOWN.code => StatusCode::NOT_FOUND,
        (_, 2) => StatusCode::BAD_REQUEST,
        (code, _) if code == codes::PROTOCOL.code => StatusCode::BAD_REQUEST,
        (_, 69 | 75) => StatusCode::SERVICE_UNAVAILABLE,
        (_, 77) => StatusCode::FORBIDDEN,
        _ => StatusCode::CONFLICT,
    };
    (status, json(&Response::Error(fault)))
}

fn json(response: &Response) -> String {
    serde_json::to_string(response).unwrap_or_default() // our own types always have a form in JSON
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::schema::{CreateTenant, SetBudget};

    #[test]
    fn each_path_is_one_request_and_all_else_is_nothing() {
        let get = |path, query| wanted(&Method::GET, path, query);
        assert_eq!(get("/metrics", None), Wanted::Metrics);
        assert_eq!(get("/v1/stats", None), Wanted::Answer(Box::new(Request::Stats(AskStats::default()))));
        let events = Request::Events(AskEvents { after: 7, wait: false });
        assert_eq!(get("/v1/events", Some("after=7")), Wanted::Answer(Box::new(events)));
        assert_eq!(get("/v1/events", Some("after=x")), Wanted::Nothing);
        let why = Request::Why { tenant: "a".into() };
        assert_eq!(get("/v1/why/a", None), Wanted::Answer(Box::new(why)));
        for path in ["/", "/v1", "/v1/why/", "/v2/stats", "/metrics/"] {
            assert_eq!(get(path, None), Wanted::Nothing, "{path}");
        }
        assert_eq!(get("/v1/do", None), Wanted::OtherMethod);
        assert_eq!(wanted(&Method::POST, "/v1/do", None), Wanted::Do);
        assert_eq!(wanted(&Method::DELETE, "/v1/stats", None), Wanted::OtherMethod);
    }

    #[test]
    fn what_changes_something_needs_leave_and_what_must_stay_connected_has_none() {
        let set = |dry_run| Request::Set(SetBudget { dry_run, ..SetBudget::default() });
        let policy = |name: Option<&str>| {
            Request::Policy(AskPolicy { name: name.map(str::to_owned), ..AskPolicy::default() })
        };
        let code = |request: &Request, allow| permit(request, allow).map_err(|fault| fault.code);
        for changes in [
            set(false),
            policy(Some("static")),
            Request::Switch { off: true },
            Request::Park { tenant: "a".into() },
        ] {
            assert_eq!(code(&changes, false), Err("W0120".into()), "{changes:?}");
            assert_eq!(code(&changes, true), Ok(()));
        }
        for reads in [set(true), policy(None), Request::Stats(AskStats::default())] {
            assert_eq!(code(&reads, false), Ok(()), "{reads:?}");
        }
        for stays in
            [Request::Create(CreateTenant::default()), Request::Events(AskEvents { after: 0, wait: true })]
        {
            assert_eq!(code(&stays, true), Err("W0171".into()), "{stays:?}");
        }
    }
}
