//! Watches whose connections break or are cut.

use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use kubefan_core::upstream::{Client, Dial};
use tokio::sync::Notify;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::load::config::Config;
use crate::load::http2::Windows;
use crate::load::test_server;
use crate::load::test_server::{endless, in_time};

const WINDOWS: Windows = Windows {
    stream: 1 << 16,
    connection: 1 << 20,
};

/// Answers every request with a watch that never ends.
fn answer(_: &Request<Incoming>) -> Response<Body> {
    let bookmark = Bytes::from_static(b"{\"type\":\"BOOKMARK\"}\n");
    let mut response = Response::new(endless(bookmark));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn context(client: Client) -> WatcherContext {
    let run_state = RunState::new(&Config::for_tests(), client, "/objects".to_owned(), "r");
    WatcherContext {
        run_state: Arc::new(run_state),
        tally: Mutex::new(Tally::new(1)),
        opening_permits: Semaphore::new(2),
    }
}

/// Opens a watch, and returns its body.
async fn open_body(context: &WatcherContext, slot: &Slot) -> Body {
    let path = context.run_state.watch_path(0, None);
    match in_time(open(context, slot, &path, || ())).await {
        OpenOutcome::Watch(opened) => opened.response.into_body(),
        OpenOutcome::Expired | OpenOutcome::Refused => panic!("the watch is not open"),
    }
}

/// Checks that a cut ends the watches with these bodies.
async fn check_cut(slot: &Slot, bodies: [Body; 2]) {
    slot.cut().await;
    for body in bodies {
        let ended = in_time(body.collect()).await;
        assert!(ended.is_err());
    }
}

/// The first connection breaks while it is opened. The watch that waited for it opens another one,
/// which the first watch then shares.
#[tokio::test(start_paused = true)]
async fn a_failed_connection_leaves_its_successor_in_place() {
    let (opening, mut opened) = unbounded_channel();
    let dials = AtomicUsize::new(0);
    let dial: Dial = Arc::new(move || {
        if dials.fetch_add(1, Ordering::Relaxed) == 0 {
            // The handshake waits until this byte is read.
            let (near, far) = tokio::io::duplex(1);
            opening.send(far).expect("the test receives it");
            return Ok(near);
        }
        let (near, far) = tokio::io::duplex(64 << 10);
        tokio::spawn(test_server::serve(far, answer, Arc::default()));
        Ok(near)
    });
    let context = context(Client::in_memory(&dial));
    let slot = Slot::with_sinks(WINDOWS);
    let break_first = async { drop(opened.recv().await) };
    let (first, second, ()) = tokio::join!(
        open_body(&context, &slot),
        open_body(&context, &slot),
        break_first
    );
    check_cut(&slot, [first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_ends_the_watches_on_a_connection_that_the_server_is_closing() {
    let drain = Arc::new(Notify::new());
    let context = context(test_server::client(answer, &drain));
    let slot = Slot::with_sinks(WINDOWS);
    let first = open_body(&context, &slot).await;
    let connection = slot.connection(&context.run_state.client).await;
    let connection = connection.expect("a connection");
    drain.notify_one();
    let closed = async {
        while !connection.is_closed() {
            tokio::task::yield_now().await;
        }
    };
    in_time(closed).await;
    let second = open_body(&context, &slot).await;
    check_cut(&slot, [first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_reopens_before_its_connection_is_cut_is_not_after_the_cut() {
    let client = test_server::client(answer, &Arc::default());
    let context = Arc::new(context(client));
    let slot = Slot::with_sinks(WINDOWS);
    let watcher = Arc::new(Mutex::new(Watcher::new(Arc::clone(&context), 0)));
    context.run_state.cut_connections();
    let old = in_time(open_next(&slot, &watcher)).await;
    slot.cut().await;
    let ended = in_time(old.expect("a watch").collect()).await;
    assert!(ended.is_err());
    assert!(watcher.lock().on_end());
    let new = in_time(open_next(&slot, &watcher)).await;
    assert!(new.is_some());
    assert!(watcher.lock().watch.is_after_cut);
    // Only the second watch was not cut.
    assert!(!watcher.lock().on_end());
    assert_eq!(watcher.lock().watch.result.ends, 1);
}
