//! Notes what the API server's answer to a forwarded request tells about the state.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use kubefan_core::api::{ObjectKey, ResourceVersion, WireFormat};
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::cache::Reader;
use kubefan_core::codec::{AnsweredObject, Deletion};

use super::effect::ToldBy;
use super::{Requester, Sessions, StoredResource};
use crate::ledger::{Account, GrowingCharge, MemoryKind};
use crate::server::upstream::forward::{Beginning, beginning, rejoined};

/// How long a read waits for a version that its cache has not reached, before the cache is proven.
pub(super) const CATCH_UP_WAIT: Duration = Duration::from_secs(1);
/// The longest answer, in bytes, that is read for the version of its object. A longer one marks.
const MAX_ANSWER: usize = 256 << 10;

/// What a cache had before a request was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    applied: ResourceVersion,
    /// The version of the request's object, if the cache had it.
    object: Option<ResourceVersion>,
}

/// A request whose answer tells its user about the state. If it is dropped before the answer, the
/// client or the API server went away: a write then may have been done.
pub(in crate::server) struct Pending {
    sessions: Sessions,
    requester: Requester,
    effects: Vec<(StoredResource, ToldBy)>,
    before: Vec<Before>,
    /// True until the answer came, if the request is a write.
    is_unanswered_write: bool,
}

impl Before {
    /// Returns what the cache of `reader` has of the object; `None` while the cache is not ready.
    pub(super) fn of(reader: &Reader, namespace: Option<&str>, name: &str) -> Option<Self> {
        let snapshot = reader.snapshot()?;
        let object = snapshot.get(&ObjectKey::new(namespace, name));
        Some(Self {
            applied: snapshot.resource_version(),
            object: object.map(|object| object.resource_version),
        })
    }

    /// Returns true if `version` can be that of the object in the answer: it is new, or the cache
    /// had exactly this object. Otherwise the answer comes from another history than the cache.
    fn may_precede(self, version: ResourceVersion) -> bool {
        version > self.applied || self.object == Some(version)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.is_unanswered_write {
            self.mark_all();
        }
    }
}

impl Pending {
    pub(super) fn new(
        sessions: Sessions,
        requester: Requester,
        effects: Vec<(StoredResource, ToldBy)>,
        before: Vec<Before>,
        is_write: bool,
    ) -> Self {
        Self {
            sessions,
            requester,
            effects,
            before,
            is_unanswered_write: is_write,
        }
    }

    /// Notes what `response` tells, and returns it. The body of a short answer is read first, and
    /// charged to `account`.
    pub(in crate::server) async fn answered(
        mut self,
        response: Response<Body>,
        account: Option<Arc<Account>>,
    ) -> Response<Body> {
        let status = response.status();
        let is_read = !self.is_unanswered_write;
        // Nothing was done for a caller that the API server does not know.
        if status == StatusCode::UNAUTHORIZED || is_read && !tells_a_state(status) {
            self.is_unanswered_write = false;
            return response;
        }
        let has_object = self
            .effects
            .iter()
            .any(|(_, told_by)| *told_by != ToldBy::Nothing);
        let format = (has_object && status.is_success())
            .then(|| readable(&response))
            .flatten();
        let (response, object) = match format {
            Some(format) => read(response, format, account).await,
            None => (response, None),
        };
        self.is_unanswered_write = false;
        for (resource, told_by) in &self.effects {
            match told(*told_by, status, object, &self.before) {
                Told::Version(version) => self.sessions.wrote(self.requester, resource, version),
                Told::Anything => self.sessions.mark(self.requester, resource),
                Told::Nothing => {}
            }
        }
        response
    }

    fn mark_all(&self) {
        for (resource, _) in &self.effects {
            self.sessions.mark(self.requester, resource);
        }
    }
}

/// What an answer tells about the state of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// An object has this version.
    Version(ResourceVersion),
    /// Some state whose version is not known.
    Anything,
    Nothing,
}

/// Returns what an answer with `status` and `object` tells. `before` is what the caches had before
/// the request was sent.
fn told(
    told_by: ToldBy,
    status: StatusCode,
    object: Option<AnsweredObject>,
    before: &[Before],
) -> Told {
    let Some(AnsweredObject { version, deletion }) = object.filter(|_| status.is_success()) else {
        return match told_by {
            ToldBy::DryRun if status.is_success() => Told::Nothing,
            _ => Told::Anything,
        };
    };
    let is_kept = match told_by {
        ToldBy::Nothing => false,
        ToldBy::Object | ToldBy::DryRun => deletion != Deletion::Possible,
        ToldBy::Deletion => deletion == Deletion::Pending,
    };
    if is_kept && before.iter().all(|before| before.may_precede(version)) {
        Told::Version(version)
    } else {
        Told::Anything
    }
}

/// Returns true if the answer to a read with `status` tells about a state: the object is there, or
/// it is not.
fn tells_a_state(status: StatusCode) -> bool {
    status.is_success() || matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// Returns the wire format of the object in `response`, if it can be read.
fn readable(response: &Response<Body>) -> Option<WireFormat> {
    let headers = response.headers();
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    let media_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    match media_type.split(';').next()?.trim() {
        "application/json" => Some(WireFormat::Json),
        "application/vnd.kubernetes.protobuf" => Some(WireFormat::Protobuf),
        _ => None,
    }
}

/// Reads the object in `response`, and returns the response with all of its body.
async fn read(
    response: Response<Body>,
    format: WireFormat,
    account: Option<Arc<Account>>,
) -> (Response<Body>, Option<AnsweredObject>) {
    let (parts, body) = response.into_parts();
    let charge = GrowingCharge::new(MemoryKind::Stream, account);
    let (body, object) = match beginning(body, charge, MAX_ANSWER).await {
        Ok(Beginning::Whole(bytes)) => {
            let object = AnsweredObject::read(format, &bytes);
            (body::full(bytes), object)
        }
        Ok(Beginning::Part(received, rest)) => (rejoined(received, rest), None),
        // The client sees what happened: the answer breaks off.
        Err(error) => {
            let broken = stream::iter([Err::<Frame<Bytes>, _>(error)]);
            (body::boxed(StreamBody::new(broken)), None)
        }
    };
    (Response::from_parts(parts, body), object)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_answer_tells_a_version_or_any_state_or_nothing() {
        const V: ResourceVersion = ResourceVersion(100);
        let object = |deletion| {
            Some(AnsweredObject {
                version: V,
                deletion,
            })
        };
        let version = Told::Version(V);
        for (told_by, status, answered, expected) in [
            (ToldBy::Object, 200, object(Deletion::None), version),
            (ToldBy::Object, 201, object(Deletion::None), version),
            (ToldBy::Object, 200, object(Deletion::Pending), version),
            // The last finalizer went.
            (
                ToldBy::Object,
                200,
                object(Deletion::Possible),
                Told::Anything,
            ),
            (ToldBy::Object, 200, None, Told::Anything),
            (ToldBy::Object, 409, object(Deletion::None), Told::Anything),
            (ToldBy::Object, 404, None, Told::Anything),
            (ToldBy::Object, 500, None, Told::Anything),
            (ToldBy::Deletion, 200, object(Deletion::Pending), version),
            (
                ToldBy::Deletion,
                200,
                object(Deletion::Possible),
                Told::Anything,
            ),
            (
                ToldBy::Deletion,
                200,
                object(Deletion::None),
                Told::Anything,
            ),
            (ToldBy::Deletion, 200, None, Told::Anything),
            (ToldBy::Nothing, 200, object(Deletion::None), Told::Anything),
            (ToldBy::DryRun, 200, object(Deletion::None), version),
            (ToldBy::DryRun, 201, None, Told::Nothing),
            (ToldBy::DryRun, 409, None, Told::Anything),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(
                told(told_by, status, answered, &[]),
                expected,
                "{told_by:?} {status}"
            );
        }
    }

    #[test]
    fn an_old_version_is_believed_only_if_the_cache_had_the_object() {
        for (applied, object, expected) in [
            (99, None, true),
            (99, Some(50), true),
            (100, Some(100), true),
            (150, Some(100), true),
            // The API server was restored from a backup.
            (150, Some(120), false),
            (150, None, false),
            (100, Some(90), false),
        ] {
            let before = Before {
                applied: ResourceVersion(applied),
                object: object.map(ResourceVersion),
            };
            let found = before.may_precede(ResourceVersion(100));
            assert_eq!(found, expected, "{before:?}");
        }
    }

    #[test]
    fn only_plain_json_and_protobuf_are_read() {
        const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
        for (media_type, encoding, expected) in [
            ("application/json", None, Some(WireFormat::Json)),
            (
                "application/json; charset=utf-8",
                None,
                Some(WireFormat::Json),
            ),
            (PROTOBUF, None, Some(WireFormat::Protobuf)),
            ("application/json", Some("gzip"), None),
            ("application/cbor", None, None),
            ("application/yaml", None, None),
        ] {
            let mut response = Response::new(body::empty());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            if let Some(encoding) = encoding {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
            }
            assert_eq!(readable(&response), expected, "{media_type} {encoding:?}");
        }
    }
}
