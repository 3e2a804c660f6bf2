//! Notices answers of another kubefan that may be older than their requests.
//!
//! The upstream may be a kubefan. It names the method of its proof in a header of each answer that
//! its cache gives to a read of the most recent state. With the freshness policies other than
//! `strict`, such an answer may be older than the request. Then it proves nothing: neither a
//! version, nor objects, nor that a list shows all writes before it. A kubefan relays the header,
//! so this also holds for those behind the upstream.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::GroupVersionResource;
use crate::upstream::Error;

/// Header of an answer from a cache to a read of the most recent state. It names the method of the
/// proof that the cache has this state.
pub const PROOF_HEADER: HeaderName = HeaderName::from_static("x-kubefan-proof");

/// The methods that prove a state which is at least as new as the request.
const METHODS_FOR_REQUESTS: [&str; 3] = ["barrier", "verification-list", "informer-list"];

/// The answers that the clients of one cache got, and that may be older than their requests. Clones
/// share them.
#[derive(Clone, Debug, Default)]
pub(super) struct UnprovenAnswers(Arc<Mutex<Unproven>>);

#[derive(Debug, Default)]
struct Unproven {
    /// When the last of them came.
    last: Option<Instant>,
    is_logged: bool,
}

/// Returns the method in `headers`, if the answer comes from the cache of a kubefan and may be
/// older than its request. The API server itself sends no such header.
pub(crate) fn unproven_method(headers: &HeaderMap) -> Option<&str> {
    let method = headers.get(PROOF_HEADER)?;
    let method = method.to_str().unwrap_or("unknown");
    (!METHODS_FOR_REQUESTS.contains(&method)).then_some(method)
}

// === impl UnprovenAnswers ===

impl UnprovenAnswers {
    /// Notes whether an answer with `headers` to a read of the most recent state may be older than
    /// its request.
    pub(super) fn note(&self, headers: &HeaderMap) {
        if unproven_method(headers).is_some() {
            self.0.lock().last = Some(Instant::now());
        }
    }

    /// Checks that an answer with `headers` is at least as new as its request, which was a read of
    /// the most recent state of `resource`. The first failure is logged.
    ///
    /// # Errors
    ///
    /// [`Error::Unproven`] if the answer may be older.
    pub(super) fn check(
        &self,
        headers: &HeaderMap,
        resource: &GroupVersionResource,
    ) -> Result<(), Error> {
        let Some(method) = unproven_method(headers) else {
            return Ok(());
        };
        let is_logged = {
            let mut unproven = self.0.lock();
            unproven.last = Some(Instant::now());
            std::mem::replace(&mut unproven.is_logged, true)
        };
        if !is_logged {
            tracing::warn!(
                %resource,
                method,
                "the upstream is a kubefan that answers with older states, so reads of the most \
                 recent state are forwarded to it; give it the freshness policy strict"
            );
        }
        Err(Error::Unproven {
            method: method.to_owned(),
        })
    }

    /// Returns when the last of these answers came.
    pub(super) fn last(&self) -> Option<Instant> {
        self.0.lock().last
    }
}
