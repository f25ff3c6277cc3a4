//! Whether instances that do not accept requests yet are ready to.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::server::Gateway;
use crate::control::model::ReadyWhen;

/// Between two looks.
const EACH: Duration = Duration::from_millis(100);

/// Longest that an instance may take to say that it is ready.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks, for ever.
pub(super) async fn probe(gateway: Arc<Gateway>) {
    loop {
        tokio::time::sleep(EACH).await;
        let table = gateway.book().table().clone();
        let looks: Vec<_> = table
            .services
            .into_iter()
            .flat_map(|route| {
                let gateway = gateway.clone();
                let asked = route.backends.into_iter().filter(|backend| !backend.accepts);
                asked.map(move |backend| {
                    let (gateway, when, service) =
                        (gateway.clone(), route.ready.clone(), route.service.clone());
                    tokio::spawn(async move {
                        let looked = tokio::time::timeout(PATIENCE, is_ready(&backend.address, &when)).await;
                        gateway.book().is_ready(&service, backend.id, looked == Ok(true));
                    })
                })
            })
            .collect();
        for look in looks {
            let _ = look.await; // it has a time limit of its own
        }
    }
}

async fn is_ready(address: &str, when: &ReadyWhen) -> bool {
    let Ok(stream) = TcpStream::connect(address).await else { return false };
    let ReadyWhen::Answers(path) = when else { return true };
    let Ok((mut sender, connection)) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await
    else {
        return false;
    };
    tokio::spawn(connection);
    let request = hyper::Request::get(path).header(HOST, address).body(Empty::<Bytes>::new());
    let Ok(request) = request else { return false };
    sender.send_request(request).await.is_ok_and(|answer| answer.status().is_success())
}
