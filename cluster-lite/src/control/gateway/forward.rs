//! One request: it waits for an instance, goes there, and its answer comes back as it is produced.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::book::{Refusal, Sent, Ticket, Turned};
use super::server::Gateway;

/// Longest that an instance may take to take a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// A body up to this size is kept, so that it can be sent twice.
const KEPT: u64 = 64 << 10;

/// A body of ours, or one that an instance sends.
pub(super) type Body = Either<Full<Bytes>, Answer>;

/// Headers that concern one connection alone (RFC 9110, section 7.6.1).
const OF_ONE_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// A ticket that is settled once: at the latest when its client goes away.
struct Seat {
    gateway: Arc<Gateway>,
    ticket: Option<Ticket>,
}

impl Seat {
    /// Whether it waits again.
    fn settle(&mut self, sent: Sent) -> Result<bool, Refusal> {
        let Some(ticket) = self.ticket else { return Ok(false) };
        let settled = self.gateway.book().settle(self.gateway.now(), ticket, sent);
        if settled != Ok(true) {
            self.ticket = None;
            self.gateway.pump();
        } // else it is sent on once somebody waits for it: nobody would hear where to
        settled
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.gateway.forget(ticket);
            let _ = self.settle(Sent::Abandoned);
        }
    }
}

/// An instance's answer; its end settles the request.
pub(super) struct Answer {
    body: Incoming,
    seat: Seat,
    deadline: Pin<Box<tokio::time::Sleep>>,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.deadline.as_mut().poll(context).is_ready() {
            let _ = self.seat.settle(Sent::TooLate);
            return Poll::Ready(Some(Err("the instance took too long".into())));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let ended = match &polled {
            Poll::Ready(None) => Some(Sent::Answered),
            Poll::Ready(Some(Err(_))) => Some(Sent::Broken { again: false }),
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => Some(Sent::Answered),
            _ => None,
        };
        if let Some(sent) = ended {
            let _ = self.seat.settle(sent);
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

use std::future::Future;

/// A request's body: whole, or as it comes and then once.
enum Load {
    Kept(Bytes),
    Streamed(Option<Incoming>),
}

/// Takes a request to an instance.
pub(super) async fn forward(gateway: Arc<Gateway>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str);
    let (service, rest) = split(path);
    let (service, rest) = (service.to_owned(), rest.to_owned());
    let (mut head, body) = request.into_parts();
    let idempotent =
        matches!(head.method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS)
            || head.headers.contains_key("idempotency-key");
    OF_ONE_HOP.iter().for_each(|name| drop(head.headers.remove(*name)));
    let Ok(load) = take_in(body).await else {
        return refused(Refusal::BrokenOff, &service);
    };
    // Nothing is awaited from here until somebody waits for it: it may be sent on as soon as it has arrived.
    let work_ns = gateway.book().work_ns(&service, |name| head.headers.get(name)?.to_str().ok());
    let arrived = gateway.book().arrive(gateway.now(), &service, work_ns);
    let ticket = match arrived {
        Ok(ticket) => ticket,
        Err(refusal) => return refused(refusal, &service),
    };
    let seat = Seat { gateway: gateway.clone(), ticket: Some(ticket) };
    let Ok(uri) = rest.parse::<Uri>() else { return refused(Refusal::NoService, &service) };
    let asked = Asked { service, uri, method: head.method, headers: head.headers, idempotent };
    send(gateway, seat, asked, load).await
}

struct Asked {
    service: String,
    uri: Uri,
    method: Method,
    headers: HeaderMap,
    idempotent: bool,
}

async fn take_in(body: Incoming) -> Result<Load, hyper::Error> {
    let small = body.size_hint().upper().is_some_and(|bytes| bytes <= KEPT);
    if small { Ok(Load::Kept(body.collect().await?.to_bytes())) } else { Ok(Load::Streamed(Some(body))) }
}

async fn send(gateway: Arc<Gateway>, mut seat: Seat, asked: Asked, mut load: Load) -> Response<Body> {
    loop {
        let Some(ticket) = seat.ticket else { return refused(Refusal::BrokenOff, &asked.service) };
        let address = match gateway.wait_for(ticket).await {
            Ok(Turned::To(_, address)) => address,
            Ok(Turned::Refused(refusal)) => {
                seat.ticket = None;
                return refused(refusal, &asked.service);
            }
            Err(_) => return refused(Refusal::NoneInTime, &asked.service),
        };
        let patience = patience(&gateway, &asked.service);
        let sent = match tokio::time::timeout(CONNECT, TcpStream::connect(&address)).await {
            Ok(Ok(stream)) => {
                match tokio::time::timeout(patience, ask(stream, &address, &asked, &mut load)).await {
                    Ok(Ok(answer)) => return returned(answer, seat, patience),
                    Ok(Err(again)) => Sent::Broken { again },
                    Err(_) => Sent::TooLate,
                }
            }
            _ => Sent::NotConnected,
        };
        match seat.settle(sent) {
            Ok(true) => {}
            Ok(false) => return refused(Refusal::BrokenOff, &asked.service),
            Err(refusal) => return refused(refusal, &asked.service),
        }
    }
}

fn patience(gateway: &Gateway, service: &str) -> Duration {
    let book = gateway.book();
    let route = book.table().services.iter().find(|route| route.service == service);
    Duration::from_millis(route.map_or(300_000, |route| route.answer_deadline_ms))
}

/// # Errors
/// It broke off; whether another instance may be asked.
async fn ask(
    stream: TcpStream,
    address: &str,
    asked: &Asked,
    load: &mut Load,
) -> Result<Response<Incoming>, bool> {
    let _ = stream.set_nodelay(true); // small requests are sent at once
    let (body, replays): (Either<Full<Bytes>, Incoming>, bool) = match load {
        Load::Kept(bytes) => (Either::Left(Full::new(bytes.clone())), true),
        Load::Streamed(body) => match body.take() {
            Some(body) => (Either::Right(body), false),
            None => return Err(false),
        },
    };
    let again = asked.idempotent && replays;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| again)?;
    tokio::spawn(connection);
    let mut request = Request::new(body);
    *request.method_mut() = asked.method.clone();
    *request.uri_mut() = asked.uri.clone();
    *request.headers_mut() = asked.headers.clone();
    if let Ok(host) = HeaderValue::from_str(address) {
        request.headers_mut().insert(header::HOST, host);
    }
    sender.send_request(request).await.map_err(|_| again)
}

fn returned(answer: Response<Incoming>, mut seat: Seat, patience: Duration) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    OF_ONE_HOP.iter().for_each(|name| drop(head.headers.remove(*name)));
    if body.is_end_stream() {
        let _ = seat.settle(Sent::Answered);
    }
    let deadline = Box::pin(tokio::time::sleep(patience));
    Response::from_parts(head, Either::Right(Answer { body, seat, deadline }))
}

/// `/SERVICE/REST` as `SERVICE` and `/REST`.
fn split(path: &str) -> (&str, String) {
    let path = path.trim_start_matches('/');
    let end = path.find(['/', '?']).unwrap_or(path.len());
    let (service, rest) = path.split_at(end);
    if rest.starts_with('/') { (service, rest.to_owned()) } else { (service, format!("/{rest}")) }
}

/// Text of ours.
pub(super) fn plain(text: String, content_type: &'static str) -> Response<Body> {
    let mut answer = Response::new(Either::Left(Full::new(Bytes::from(text))));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

fn refused(refusal: Refusal, service: &str) -> Response<Body> {
    let (status, what) = match refusal {
        Refusal::NoService => (StatusCode::NOT_FOUND, "there is no such service"),
        Refusal::QueueFull => (StatusCode::SERVICE_UNAVAILABLE, "too many requests wait already"),
        Refusal::NoneInTime => (StatusCode::SERVICE_UNAVAILABLE, "no instance was free in time"),
        Refusal::BrokenOff => (StatusCode::BAD_GATEWAY, "the instance broke off"),
        Refusal::NoAnswer => (StatusCode::GATEWAY_TIMEOUT, "the instance did not answer in time"),
    };
    let body = serde_json::json!({"error": what, "reason": refusal.name(), "service": service});
    let mut answer = plain(format!("{body}\n"), "application/json");
    *answer.status_mut() = status;
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_a_path_is_the_service_and_the_rest_is_its_own() {
        assert_eq!(split("/web/v1/x?y=1"), ("web", "/v1/x?y=1".into()));
        assert_eq!(split("/web"), ("web", "/".into()));
        assert_eq!(split("/web?y=1"), ("web", "/?y=1".into()));
        assert_eq!(split("/"), ("", "/".into()));
    }
}
