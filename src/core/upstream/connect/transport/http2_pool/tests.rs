//! Tests with a server that closes connections while requests are sent.

use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;
use http::{Request, Response};
use tokio::sync::Notify;

use crate::body::empty;
use crate::upstream::Identity::Kubefan;
use crate::upstream::tests::support::{TestServer, in_time};

const ROUNDS: usize = 50;
const CONCURRENT: usize = 100;

/// The server closes its connections after each answer, as the API server does for requests without
/// credentials. A request that stayed in the queue of a closed connection would never be answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_on_connections_that_are_closed_end() {
    for is_http2 in [true, false] {
        end(is_http2).await;
    }
}

async fn end(is_http2: bool) {
    let drain = Arc::<OnceLock<Arc<Notify>>>::default();
    let close = Arc::clone(&drain);
    let answer = move |_| {
        if let Some(close) = close.get() {
            close.notify_waiters();
        }
        async { Response::new(empty()) }
    };
    let server = if is_http2 {
        TestServer::tls(answer).await
    } else {
        TestServer::plain(answer).await
    };
    drain.set(Arc::clone(&server.drain)).expect("set once");
    let client = server.client().await;
    let mut answered = 0;
    for _ in 0..ROUNDS {
        let request = || async {
            let request = Request::get("/api").body(empty()).expect("a request");
            // A request fails if each connection on which it was sent is closed.
            client.request(Kubefan, request).await.is_ok()
        };
        let answers = in_time(join_all((0..CONCURRENT).map(|_| request()))).await;
        answered += answers
            .into_iter()
            .filter(|is_answered| *is_answered)
            .count();
    }
    assert!(answered > ROUNDS, "{answered} requests are answered");
}
