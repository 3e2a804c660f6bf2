//! Notes what the API server's answer to a forwarded request shows of the state.

use std::sync::Arc;

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

use super::Sessions;
use super::effect::ShownBy;
use super::table::{Requester, StoredResource};
use crate::ledger::{Account, GrowingCharge, MemoryKind};
use crate::server::upstream::forward::{Beginning, beginning, rejoined};

/// The longest answer, in bytes, that is read for the version of its object. A longer one marks.
const MAX_ANSWER: usize = 256 << 10;

/// What a cache had before a request was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) applied: ResourceVersion,
    /// The version of the request's object, if the cache had it.
    pub(super) object: Option<ResourceVersion>,
}

/// A request whose answer shows its user a state.
pub(in crate::server) struct Pending {
    sessions: Sessions,
    requester: Requester,
    effects: Vec<(StoredResource, ShownBy)>,
    before: Vec<Before>,
    /// True until the answer came, if the request is a write. If it is dropped before, the client
    /// or the API server went away, and the API server may do the write.
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

    /// Returns true if an answer with `version` can come from the same history as the cache: the version
    /// is new, or the cache had exactly this object.
    pub(super) fn agrees_with(self, version: ResourceVersion) -> bool {
        version > self.applied || self.object == Some(version)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.is_unanswered_write {
            for (resource, _) in &self.effects {
                self.sessions.lose_write(self.requester, resource);
            }
        }
    }
}

impl Pending {
    pub(super) fn new(
        sessions: Sessions,
        requester: Requester,
        effects: Vec<(StoredResource, ShownBy)>,
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

    /// Notes what `response` shows, and returns it. The body of a short answer is read first, and
    /// charged to `account`.
    pub(in crate::server) async fn answered(
        mut self,
        response: Response<Body>,
        account: Option<Arc<Account>>,
    ) -> Response<Body> {
        let status = response.status();
        if status.is_server_error() {
            // The write may have been done, or be done later. A read has shown nothing.
            return response;
        }
        let has_object = self
            .effects
            .iter()
            .any(|(_, shown_by)| *shown_by != ShownBy::Nothing);
        let format = (has_object && status.is_success())
            .then(|| readable(&response))
            .flatten();
        let (response, object) = match format {
            Some(format) => read(response, format, account).await,
            None => (response, None),
        };
        let is_read = !self.is_unanswered_write;
        self.is_unanswered_write = false;
        for (resource, shown_by) in &self.effects {
            let is_user = matches!(self.requester, Requester::User(_));
            match shown(
                *shown_by,
                (status, is_read || !is_user),
                object,
                &self.before,
            ) {
                Shown::Version(version) => self.sessions.seen(self.requester, resource, version),
                Shown::Anything => self.sessions.mark(self.requester, resource),
                Shown::Nothing => {}
            }
        }
        response
    }
}

/// What an answer shows of the state of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// An object has this version.
    Version(ResourceVersion),
    /// Some state whose version is not known.
    Anything,
    Nothing,
}

/// Returns what an answer shows that has a status and `object`, which is `None` if it can't be read.
/// With `only_clear`, a refusal counts only if it surely depends on the state: that of a read, or of a
/// caller whose refusals must not mark the sessions of others. `before` is what the caches had before
/// the request was sent.
fn shown(
    shown_by: ShownBy,
    (status, only_clear): (StatusCode, bool),
    object: Option<AnsweredObject>,
    before: &[Before],
) -> Shown {
    if !status.is_success() {
        return match status {
            StatusCode::NOT_FOUND
            | StatusCode::CONFLICT
            | StatusCode::GONE
            | StatusCode::UNPROCESSABLE_ENTITY => Shown::Anything,
            StatusCode::UNAUTHORIZED => Shown::Nothing,
            _ if only_clear => Shown::Nothing,
            // Admission may refuse a write for the state of its object, and a budget an eviction.
            _ => Shown::Anything,
        };
    }
    let Some(AnsweredObject { version, deletion }) = object else {
        return Shown::Anything;
    };
    let Some(version) = version else {
        // A dry-run of a creation.
        return match shown_by {
            ShownBy::DryRun => Shown::Nothing,
            _ => Shown::Anything,
        };
    };
    let is_kept = match shown_by {
        ShownBy::Nothing => false,
        ShownBy::Object | ShownBy::DryRun => deletion != Deletion::Possible,
        ShownBy::Deletion => deletion == Deletion::Pending,
    };
    if is_kept && before.iter().all(|before| before.agrees_with(version)) {
        Shown::Version(version)
    } else {
        Shown::Anything
    }
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
    fn an_answer_shows_a_version_or_any_state_or_nothing() {
        use Deletion::{None as Kept, Pending, Possible};
        use ShownBy::{Deletion as Deleted, DryRun, Nothing, Object};
        const V: ResourceVersion = ResourceVersion(100);
        let object = |deletion| {
            let version = Some(V);
            Some(AnsweredObject { version, deletion })
        };
        let unversioned = Some(AnsweredObject {
            version: None,
            deletion: Kept,
        });
        let version = Shown::Version(V);
        for (shown_by, status, answered, expected) in [
            (Object, 200, object(Kept), version),
            (Object, 201, object(Kept), version),
            (Object, 200, object(Pending), version),
            // The last finalizer went.
            (Object, 200, object(Possible), Shown::Anything),
            (Object, 200, None, Shown::Anything),
            (Object, 200, unversioned, Shown::Anything),
            (Object, 409, None, Shown::Anything),
            (Object, 404, None, Shown::Anything),
            (Object, 422, None, Shown::Anything),
            (Object, 401, None, Shown::Nothing),
            (Object, 403, None, Shown::Anything),
            (Nothing, 429, None, Shown::Anything),
            (Deleted, 200, object(Pending), version),
            (Deleted, 200, object(Possible), Shown::Anything),
            (Deleted, 200, object(Kept), Shown::Anything),
            (Deleted, 200, None, Shown::Anything),
            (Nothing, 200, object(Kept), Shown::Anything),
            (DryRun, 200, object(Kept), version),
            (DryRun, 201, unversioned, Shown::Nothing),
            // YAML, or too long to be read.
            (DryRun, 200, None, Shown::Anything),
            (DryRun, 409, None, Shown::Anything),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let found = shown(shown_by, (status, false), answered, &[]);
            assert_eq!(found, expected, "{shown_by:?} {status}");
        }
        for (status, expected) in [
            (200, version),
            (404, Shown::Anything),
            (410, Shown::Anything),
            (400, Shown::Nothing),
            (403, Shown::Nothing),
            (429, Shown::Nothing),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let found = shown(Object, (status, true), object(Kept), &[]);
            assert_eq!(found, expected, "GET {status}");
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
            let found = before.agrees_with(ResourceVersion(100));
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
