//! The server: one thread that speaks HTTP, a few that wait for the node manager. Bodies, connections and time are bounded.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::route::{self, Wanted};
use super::{Token, metrics};
use crate::codes;
use crate::control::schema::MAX_LINE;
use crate::fault::Fault;
use crate::place::Place;

/// Time for a request's head.
const HEAD: Duration = Duration::from_secs(5);

/// Time for a whole connection: it ends whatever is under way. A scraper comes again.
const CONNECTION: Duration = Duration::from_secs(60);

/// Connections at the same time; more wait in the kernel's queue.
const CONNECTIONS: usize = 64;

/// Requests that wait for the node manager at the same time.
const ASKING: usize = 8;

/// How it is to serve.
pub struct Settings {
    /// The node manager's place.
    pub place: Place,
    /// What must be shown for anything but metrics; without one there is nothing but metrics.
    pub token: Option<Token>,
    /// Whether budgets, policies and the switch may be changed.
    pub allow_set: bool,
}

type Answer = Response<Full<Bytes>>;

/// Serves until the process ends.
///
/// # Errors
/// The system refuses something at the start.
pub fn serve(listener: TcpListener, settings: Settings) -> Result<(), Fault> {
    let failed = |error: std::io::Error| {
        Fault::system(&codes::SYSTEM, "serve HTTP", error, "look at the limits of processes and files")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(ASKING)
        .build()
        .map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let settings = Arc::new(settings);
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        accept(&listener, &settings).await;
        Ok(())
    })
}

async fn accept(listener: &tokio::net::TcpListener, settings: &Arc<Settings>) {
    let seats = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
    while let Ok(seat) = seats.clone().acquire_owned().await {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of descriptors, say: others end in a moment.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let settings = settings.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(settings.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(socket), service);
            let _ = tokio::time::timeout(CONNECTION, connection).await;
            drop(seat);
        });
    }
}

async fn answer(settings: Arc<Settings>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let wanted = route::wanted(request.method(), request.uri().path(), request.uri().query());
    Ok(match wanted {
        Wanted::Metrics => {
            let (status, text) = blocking(move || route::metrics(&settings.place)).await;
            let is_page = status == StatusCode::OK;
            reply(status, if is_page { metrics::CONTENT_TYPE } else { "application/json" }, text)
        }
        Wanted::Nothing => {
            let help =
                "there are /metrics, /v1/stats, /v1/policy, /v1/events?after=N, /v1/why/TENANT and /v1/do";
            with_status(StatusCode::NOT_FOUND, Fault::new(&codes::WEB, "there is nothing here", help))
        }
        Wanted::OtherMethod => {
            let fault = Fault::new(&codes::WEB, "not by this method", "GET everything, but POST to /v1/do");
            let mut answer = with_status(StatusCode::METHOD_NOT_ALLOWED, fault);
            answer.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, POST"));
            answer
        }
        Wanted::Answer(_) | Wanted::Do if !is_known(&settings, &request) => unknown(&settings),
        Wanted::Answer(asked) => ask(settings, *asked).await,
        Wanted::Do => match read(request).await {
            Ok(asked) => ask(settings, asked).await,
            Err(fault) => refuse(fault),
        },
    })
}

fn is_known(settings: &Settings, request: &Request<Incoming>) -> bool {
    let header = request.headers().get(AUTHORIZATION);
    settings.token.as_ref().zip(header).is_some_and(|(token, header)| token.is_shown_by(header.as_bytes()))
}

fn unknown(settings: &Settings) -> Answer {
    let help = match settings.token {
        Some(_) => "send `Authorization: Bearer TOKEN`",
        None => "start `weir web` with --token-file: without one it serves nothing but /metrics",
    };
    let mut answer =
        with_status(StatusCode::UNAUTHORIZED, Fault::new(&codes::TOKEN, "this needs the token", help));
    answer.headers_mut().insert(WWW_AUTHENTICATE, hyper::header::HeaderValue::from_static("Bearer"));
    answer
}

async fn read(request: Request<Incoming>) -> Result<crate::control::schema::Request, Fault> {
    let body = Limited::new(request.into_body(), MAX_LINE).collect().await.map_err(|error| {
        let message = format!("the body cannot be read: {error}");
        Fault::new(&codes::PROTOCOL, message, format!("send one request of at most {MAX_LINE} bytes"))
    })?;
    route::parse(&body.to_bytes())
}

async fn ask(settings: Arc<Settings>, asked: crate::control::schema::Request) -> Answer {
    if let Err(fault) = route::permit(&asked, settings.allow_set) {
        return refuse(fault);
    }
    let (status, text) = blocking(move || route::ask(&settings.place, &asked)).await;
    reply(status, "application/json", text)
}

/// Waits for the node manager on another thread.
async fn blocking(ask: impl FnOnce() -> (StatusCode, String) + Send + 'static) -> (StatusCode, String) {
    let asked = tokio::task::spawn_blocking(ask).await;
    asked.unwrap_or_else(|_| (StatusCode::INTERNAL_SERVER_ERROR, String::new()))
}

fn refuse(fault: Fault) -> Answer {
    let (status, text) = route::refusal(fault);
    reply(status, "application/json", text)
}

fn with_status(status: StatusCode, fault: Fault) -> Answer {
    let (_, text) = route::refusal(fault);
    reply(status, "application/json", text)
}

fn reply(status: StatusCode, content_type: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, hyper::header::HeaderValue::from_static("no-store"));
    answer
}
