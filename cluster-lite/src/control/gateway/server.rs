//! The gateway's process: one thread, one book, many connections.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::oneshot;
use weir_protocol::units::Nanos;

use super::book::{Book, Ticket, Turned};
use super::forward::{self, Body};
use super::link::Tell;
use super::{metrics, probe};

/// Time for a request's head.
const HEAD: Duration = Duration::from_secs(10);

/// Requests whose time is over are looked for this often.
const SWEEP: Duration = Duration::from_millis(20);

/// Longest that requests may take to finish once the gateway is to end.
const FINISH: Duration = Duration::from_secs(30);

/// What all connections share.
pub(super) struct Gateway {
    book: Mutex<Book>,
    waiters: Mutex<HashMap<Ticket, oneshot::Sender<Turned>>>,
    start: Instant,
    routed: tokio::sync::Notify,
    ending: tokio::sync::Notify,
}

impl Gateway {
    fn new() -> Self {
        Self {
            book: Mutex::default(),
            waiters: Mutex::default(),
            start: Instant::now(),
            routed: tokio::sync::Notify::new(),
            ending: tokio::sync::Notify::new(),
        }
    }

    /// Time since the gateway started.
    pub fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The book; one that a panic left is as good as any, since each of its calls is whole.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who hears where the request goes.
    pub fn wait_for(&self, ticket: Ticket) -> oneshot::Receiver<Turned> {
        let (tell, hear) = oneshot::channel();
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).insert(ticket, tell);
        self.pump();
        hear
    }

    /// Nobody waits for it any more.
    pub fn forget(&self, ticket: Ticket) {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).remove(&ticket);
    }

    /// Sends on whoever can be.
    pub fn pump(&self) {
        let turned = self.book().dispatch(self.now());
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        for (ticket, turned) in turned {
            // A client that has gone has settled its ticket: then nothing is sent.
            let _ = waiters.remove(&ticket).map(|waiter| waiter.send(turned));
        }
    }
}

/// Serves until it is told to end.
///
/// # Errors
/// The system refuses something at the start.
pub fn serve(listener: TcpListener, link: UnixListener) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    listener.set_nonblocking(true)?;
    link.set_nonblocking(true)?;
    runtime.block_on(async {
        let gateway = Arc::new(Gateway::new());
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let link = tokio::net::UnixListener::from_std(link)?;
        let accepting = tokio::spawn(accept(listener, gateway.clone()));
        tokio::spawn(hear(link, gateway.clone()));
        tokio::spawn(sweep(gateway.clone()));
        tokio::spawn(probe::probe(gateway.clone()));
        gateway.ending.notified().await;
        accepting.abort();
        let start = Instant::now();
        while gateway.book().open() > 0 && start.elapsed() < FINISH {
            tokio::time::sleep(SWEEP).await;
        }
        // The last bytes are handed to the kernel by tasks that are about to run.
        tokio::time::sleep(SWEEP).await;
        Ok(())
    })
}

async fn sweep(gateway: Arc<Gateway>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        gateway.pump();
    }
}

async fn accept(listener: tokio::net::TcpListener, gateway: Arc<Gateway>) {
    // Without a table every service would be unknown: until there is one, clients wait in the kernel's queue.
    gateway.routed.notified().await;
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of descriptors, say: others end in a moment.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let _ = socket.set_nodelay(true); // answers are sent when they come; without it they are as right
        let gateway = gateway.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(gateway.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(socket), service);
            let _ = connection.await; // a client that goes away is no failure of ours
        });
    }
}

async fn answer(gateway: Arc<Gateway>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    Ok(match request.uri().path() {
        "/metrics" => forward::plain(metrics::page(&gateway.book().traffic()), metrics::CONTENT_TYPE),
        "/healthz" => forward::plain("ok\n".into(), "text/plain"),
        _ => forward::forward(gateway, request).await,
    })
}

/// Tables come, counts go.
async fn hear(listener: tokio::net::UnixListener, gateway: Arc<Gateway>) {
    while let Ok((stream, _)) = listener.accept().await {
        let gateway = gateway.clone();
        tokio::spawn(async move {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    Ok(Tell::Route(table)) => {
                        gateway.book().route(table);
                        gateway.routed.notify_one();
                    }
                    Ok(Tell::End) => gateway.ending.notify_one(),
                    Err(_) => return,
                }
                gateway.pump();
                let mut answer = serde_json::to_vec(&gateway.book().traffic()).unwrap_or_default();
                answer.push(b'\n');
                if write.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}
