//! Ending: passes the record of a request on when its answer has ended.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame};
use kubefan_core::body::{Body, BodyGuard, guarded};
use parking_lot::Mutex;

use super::audit;
use super::consumers::Consumers;
use super::record::{End, Ended, Record};
use crate::bill::OpenHandle;
use crate::ledger::{Charge, WatchMeter};

/// The end of one answer. When its last owner drops it, the record goes to its consumers. Its owner
/// is the body of the answer, or the task of an upgraded connection.
pub(in crate::server) struct Ending {
    consumers: Consumers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Set when the head of the answer is known, if a consumer wants the record at the end. Boxed,
    /// because an open watch needs none for the bill alone.
    record: Option<Box<Record>>,
    /// The answer in the bill, if it is a watch. It is dropped after the body, which counts its last
    /// events when it is dropped.
    open: Option<OpenHandle>,
    bytes: u64,
    end: Option<End>,
}

/// What the body of an answer owns until it is dropped. It is one guard, so that the events of a
/// watch pass through only one more body.
struct Sending {
    _charge: Option<Charge>,
    counted: Option<Counted>,
}

/// What was sent of an answer.
struct Counted {
    ending: Arc<Ending>,
    /// The length of all of the body, if it is known.
    length: Option<u64>,
    bytes: u64,
    /// Gets the bytes of a watch.
    meter: Option<Arc<WatchMeter>>,
}

impl Ending {
    /// Creates the end of an answer, which `consumers` may want.
    pub(in crate::server) fn new(consumers: Consumers) -> Self {
        Self {
            consumers,
            state: Mutex::default(),
        }
    }

    /// Makes the consumers get `record` at the end. `meter` is that of the answer if it is a watch.
    pub(in crate::server) fn begin(&self, mut record: Record, meter: Option<&Arc<WatchMeter>>) {
        let open = self.consumers.began(&record, meter);
        let is_needed = self.consumers.want_at_end(&record, open.is_some());
        if is_needed && record.arrival.info.is_long_running() {
            audit::release_head(&mut record.arrival);
        }
        let record = is_needed.then(|| Box::new(record));
        let mut state = self.state.lock();
        state.record = record;
        state.open = open;
    }

    /// Returns true if the records of watches are held until they end.
    pub(in crate::server) fn holds_watches(&self) -> bool {
        self.consumers.have_logs()
    }

    /// Returns true if the bill gets the record.
    pub(in crate::server) fn is_billed(&self) -> bool {
        self.consumers.bill.is_some()
    }

    /// Notes why the answer ends, unless another reason was noted before.
    pub(in crate::server) fn note(&self, end: End) {
        self.state.lock().end.get_or_insert(end);
    }

    /// Returns why the answer ends, if that was noted.
    #[cfg(test)]
    pub(in crate::server) fn noted(&self) -> Option<End> {
        self.state.lock().end.clone()
    }

    /// Notes the bytes that were sent.
    pub(in crate::server) fn sent(&self, bytes: u64) {
        self.state.lock().bytes = bytes;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let State {
            record,
            open,
            bytes,
            end,
        } = std::mem::take(self.state.get_mut());
        let Some(record) = record else {
            return;
        };
        let ended = Ended {
            bytes,
            lasted: record.arrival.began.elapsed(),
            end: end.unwrap_or(End::Complete),
        };
        self.consumers.ended(&record, &ended, open.is_some());
    }
}

/// Makes the body of `response` own `charge`, and count what is sent for `ending`, and for `meter`
/// if there is an ending. Without charge and ending it returns `response` unchanged.
pub(in crate::server) fn sending(
    response: Response<Body>,
    charge: Option<Charge>,
    ending: Option<Arc<Ending>>,
    meter: Option<Arc<WatchMeter>>,
) -> Response<Body> {
    if charge.is_none() && ending.is_none() {
        return response;
    }
    let length = response.body().size_hint().exact();
    let counted = ending.map(|ending| Counted {
        ending,
        length,
        bytes: 0,
        meter,
    });
    let sending = Sending {
        _charge: charge,
        counted,
    };
    guarded(response, Some(sending))
}

impl BodyGuard for Sending {
    fn passed(&mut self, next: Option<Result<&Frame<Bytes>, &dyn Display>>) {
        let Some(counted) = &mut self.counted else {
            return;
        };
        match next {
            Some(Ok(frame)) => {
                counted.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
                if let Some(meter) = &counted.meter {
                    meter.set_bytes(counted.bytes);
                }
            }
            Some(Err(error)) => counted.ending.note(End::Failed(error.to_string())),
            None => counted.ending.note(End::Complete),
        }
    }

    fn body_dropped(&mut self, is_complete: impl FnOnce() -> bool) {
        // The ending itself is dropped after the body, with this guard.
        let Some(counted) = &mut self.counted else {
            return;
        };
        // The HTTP library does not ask for more after the announced length.
        let has_all = counted.length == Some(counted.bytes) || is_complete();
        let otherwise = if has_all {
            End::Complete
        } else {
            End::ClientGone
        };
        counted.ending.sent(counted.bytes);
        counted.ending.note(otherwise);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::Ipv4Addr;
    use std::path::Path;
    use std::sync::Weak;
    use std::time::Duration;

    use futures_util::{FutureExt, StreamExt, stream};
    use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
    use http_body_util::{BodyExt, StreamBody};
    use jiff::Timestamp;
    use kubefan_core::body;
    use kubefan_core::telemetry::Registry;
    use tokio::time::Instant;

    use super::*;
    use crate::line_log::{LineLog, LogKind};
    use crate::server::answers::answer::Waits;
    use crate::server::answers::outcome::{Hit, Outcome};
    use crate::server::answers::record::{Arrival, LoggedHeaders};
    use crate::server::request::RequestInfo;
    use crate::traces::tests::World;
    use crate::traces::{Rate, RequestTrace};

    /// Sends the frames of a body, up to `most` of them, and returns what was noted at its end.
    fn sent(body: Body, most: usize) -> (u64, Option<End>) {
        let ending = Arc::new(Ending::new(Consumers::default()));
        let response = sending(Response::new(body), None, Some(Arc::clone(&ending)), None);
        let mut body = response.into_body();
        for _ in 0..most {
            if body.frame().now_or_never().flatten().is_none() {
                break;
            }
        }
        drop(body);
        let state = ending.state.lock();
        (state.bytes, state.end.clone())
    }

    fn frames(results: Vec<io::Result<&'static str>>) -> Body {
        let frames = results
            .into_iter()
            .map(|text| text.map(|text| Frame::data(text.into())));
        body::boxed(StreamBody::new(stream::iter(frames)))
    }

    #[test]
    fn the_bytes_and_the_end_of_a_body_are_noted() {
        let failed = || Err(io::Error::other("too slow"));
        let failure = End::Failed("too slow".to_owned());
        for (body, most, bytes, end) in [
            (body::empty(), 0, 0, End::Complete),
            // The HTTP library stops at the announced length.
            (body::full("four"), 1, 4, End::Complete),
            (body::full("four"), 0, 0, End::ClientGone),
            (frames(vec![Ok("one"), Ok("two")]), 3, 6, End::Complete),
            (frames(vec![Ok("one"), Ok("two")]), 1, 3, End::ClientGone),
            (frames(vec![Ok("one"), failed()]), 3, 3, failure),
        ] {
            assert_eq!(sent(body, most), (bytes, Some(end)), "{most} frames");
        }
    }

    /// Counts an event when it is dropped, if the ending exists.
    struct LastEvent {
        meter: Arc<WatchMeter>,
        ending: Weak<Ending>,
    }

    impl Drop for LastEvent {
        fn drop(&mut self) {
            let events = u64::from(self.ending.strong_count() > 0);
            self.meter.add_events(events);
        }
    }

    #[test]
    fn a_meter_gets_the_bytes_and_the_ending_is_dropped_after_the_body() {
        let meter = Arc::new(WatchMeter::default());
        let ending = Arc::new(Ending::new(Consumers::default()));
        let weak = Arc::downgrade(&ending);
        let last = LastEvent {
            meter: Arc::clone(&meter),
            ending: Weak::clone(&weak),
        };
        let frames = [Ok::<_, io::Error>(Frame::data(Bytes::from("four")))];
        // The stream holds the value until the body is dropped.
        let frames = stream::iter(frames).inspect(move |_| assert!(last.ending.strong_count() > 0));
        let response = Response::new(body::boxed(StreamBody::new(frames)));
        let response = sending(response, None, Some(ending), Some(Arc::clone(&meter)));
        let mut body = response.into_body();
        assert!(body.frame().now_or_never().flatten().is_some());
        assert_eq!((meter.bytes(), meter.events()), (4, 0));
        drop(body);
        assert_eq!(meter.events(), 1);
        assert_eq!(weak.strong_count(), 0);
    }

    const AUDIT_ID: &str = "mine";

    /// Returns the record of a GET of `target`, and the memory that its URI and headers share.
    fn record(target: &str, trace: Option<Arc<RequestTrace>>) -> (Record, Bytes) {
        let addresses = "192.0.2.1,".repeat(100);
        let parts = [target, AUDIT_ID, "agent", &addresses];
        let head = Bytes::from(parts.concat());
        let mut end = 0;
        let [uri, audit_id, user_agent, forwarded_for] = parts.map(|part| {
            end += part.len();
            head.slice(end - part.len()..end)
        });
        let value = |bytes| HeaderValue::from_maybe_shared(bytes).expect("a header value");
        let uri = Uri::from_maybe_shared(uri).expect("a URI");
        let query = uri.query().unwrap_or_default();
        let info = RequestInfo::parse(&Method::GET, uri.path(), query);
        let arrival = Arrival {
            info: Arc::new(info),
            method: Method::GET,
            uri,
            protocol: Version::HTTP_11,
            user_agent: Some(value(user_agent)),
            audit_id: value(audit_id),
            peer: Ipv4Addr::LOCALHOST.into(),
            began: Instant::now(),
            time: Timestamp::UNIX_EPOCH,
            headers: Some(Box::new(LoggedHeaders {
                forwarded_for: Some(value(forwarded_for)),
                real_ip: None,
                trace_parent: None,
            })),
            trace,
            cpu: None,
        };
        let record = Record {
            arrival,
            outcome: Outcome::Cache(Hit::default()),
            resource: None,
            caller: None,
            waits: Waits::default(),
            read: None,
            status: StatusCode::OK,
            time_to_head: Duration::ZERO,
        };
        (record, head)
    }

    #[test]
    fn the_record_of_a_watch_does_not_hold_the_head_of_its_request() {
        let log = LineLog::open(LogKind::Access, Path::new("/dev/null"), &Registry::new());
        let log = Arc::new(log.expect("opened"));
        for (target, is_shared) in [("/api/v1/pods", true), ("/api/v1/pods?watch=1", false)] {
            let ending = Ending::new(Consumers {
                access_log: Some(Arc::clone(&log)),
                ..Consumers::default()
            });
            let (record, head) = record(target, None);
            ending.begin(record, None);
            assert_eq!(head.is_unique(), !is_shared, "{target}");
            let state = ending.state.lock();
            let arrival = &state.record.as_ref().expect("a record").arrival;
            assert_eq!(arrival.uri, target);
            assert_eq!(arrival.audit_id, AUDIT_ID);
            assert_eq!(arrival.user_agent.as_ref().expect("an agent"), "agent");
            let headers = arrival.headers.as_ref().expect("headers");
            let forwarded_for = headers.forwarded_for.as_ref().expect("addresses");
            let last = forwarded_for.as_bytes().ends_with(b"192.0.2.1,127.0.0.1");
            assert_eq!(last, !is_shared, "{forwarded_for:?}");
        }
    }

    #[tokio::test]
    async fn a_trace_alone_does_not_hold_the_record_of_a_watch() {
        let world = World::new(Rate::REQUESTS);
        for (target, is_held) in [("/api/v1/pods", true), ("/api/v1/pods?watch=1", false)] {
            let ending = Ending::new(Consumers {
                traces: Some(world.traces.clone()),
                ..Consumers::default()
            });
            let trace = world.traces.begin(&HeaderMap::new(), false);
            ending.begin(record(target, trace).0, None);
            assert_eq!(ending.state.lock().record.is_some(), is_held, "{target}");
        }
    }

    #[test]
    fn the_first_reason_for_an_end_counts() {
        let ending = Ending::new(Consumers::default());
        ending.note(End::RightLost);
        ending.note(End::Complete);
        assert_eq!(ending.noted(), Some(End::RightLost));
    }
}
