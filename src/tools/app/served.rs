//! Counts what the simulated API server serves.

use std::sync::Arc;

use http::Response;
use http_body_util::BodyExt;
use kubefan_proxy::server;
use kubefan_proxy::server::Body;
use memchr::memchr_iter;

use crate::agents::{Counters, OpenWatch};

/// Counts an answer, and its body while it is sent. The frames of a watch are lines.
pub(super) fn count(
    served: &Arc<Counters>,
    is_watch: bool,
    response: Response<Body>,
) -> Response<Body> {
    Counters::add(&served.requests, 1);
    let is_watch = is_watch && response.status().is_success();
    let open = is_watch.then(|| OpenWatch::new(served));
    let served = Arc::clone(served);
    response.map(|body| {
        server::boxed(body.inspect_frame(move |frame| {
            if let Some(bytes) = frame.data_ref() {
                Counters::add(&served.bytes, bytes.len() as u64);
                if open.is_some() {
                    let lines = memchr_iter(b'\n', bytes).count();
                    Counters::add(&served.events, lines as u64);
                }
            }
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Totals;

    #[tokio::test]
    async fn answers_and_open_watches_are_counted() {
        let served = Arc::<Counters>::default();
        let answer = |text: &'static str| Response::new(server::full(text));
        let list = count(&served, false, answer("{}\n"));
        let watch = count(&served, true, answer("{}\n{}\n"));
        let mut refused = answer("{}\n");
        *refused.status_mut() = http::StatusCode::GONE;
        let refused = count(&served, true, refused);
        let totals = served.totals();
        assert_eq!((totals.requests, totals.watches, totals.bytes), (3, 1, 0));
        for answer in [list, watch, refused] {
            answer.into_body().collect().await.expect("a body");
        }
        let expected = Totals {
            requests: 3,
            events: 2,
            bytes: 12,
            ended: 1,
            ..Totals::default()
        };
        assert_eq!(served.totals(), expected);
    }
}
