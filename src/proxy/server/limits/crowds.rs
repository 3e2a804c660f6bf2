//! Notices crowds of reads that the API server answers for less than a proof of their own: GETs of
//! the most recent state, and Tables without objects.
//!
//! A crowd is answered by proofs of its cache, which its reads share (`cached/prove.rs`). Identical
//! GETs that share a forwarded call count once, because they need no proof to cost little.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kubefan_core::api::ObjectKey;
use kubefan_core::concurrency::LARGE_GROUP;
use kubefan_core::informer::Informer;

use super::counts::{Distinct, DistinctShare};
use crate::identity::Caller;
use crate::server::decide::{Need, Plan, Read};

/// The reads of the most recent state that wait for their answers.
#[derive(Default)]
pub(in crate::server) struct Crowds {
    /// The calls for the reads of each cache, if all are forwarded, by the address of the informer.
    calls: Distinct<usize, Call>,
    /// Number of the next call that serves one read only.
    next_call: AtomicU64,
}

/// A read that counts as waiting until this is dropped.
pub(in crate::server) struct WaitingRead {
    is_in_crowd: bool,
    _call: Option<DistinctShare<usize, Call>>,
}

/// A call for forwarded reads.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Call {
    /// The call for all GETs of this object that are sent with kubefan's identity.
    Shared(ObjectKey),
    /// The call for one read: of a list, or with the identity of its caller.
    Single(u64),
}

// === impl Crowds ===

impl Crowds {
    /// Counts `read`, which the cache of `informer` or the API server will answer, as waiting.
    /// Returns `None` if the API server does not answer the read for less than a proof, or if the
    /// read is not of the most recent state, or has a session.
    pub(in crate::server) fn wait(
        &self,
        caller: &Caller,
        read: &Read,
        informer: &Arc<Informer>,
    ) -> Option<WaitingRead> {
        if !is_counted(read, informer) {
            return None;
        }
        let object = match &read.plan {
            Plan::Get { name, .. } => Some(ObjectKey::new(read.namespace.as_deref(), name)),
            Plan::List { .. } | Plan::Watch { .. } => None,
        };
        Some(self.count(address(informer), caller, object))
    }

    /// Returns true if `read` would be counted now, and would be in no crowd. Counts nothing.
    pub(in crate::server) fn would_be_lone(&self, read: &Read, informer: &Arc<Informer>) -> bool {
        let others = self.calls.units(&address(informer));
        is_counted(read, informer) && !is_crowd(others + 1)
    }

    fn count(&self, cache: usize, caller: &Caller, object: Option<ObjectKey>) -> WaitingRead {
        let call = match (caller, object) {
            (Caller::Trusted, Some(object)) => Call::Shared(object),
            _ => Call::Single(self.next_call.fetch_add(1, Ordering::Relaxed)),
        };
        let call = self.calls.add(cache, (call, 1), usize::MAX);
        WaitingRead {
            is_in_crowd: is_crowd(self.calls.units(&cache)),
            _call: call,
        }
    }
}

/// Returns true if the API server answers `read` for less than a proof, so that reads like it are
/// counted. Reads of sessions are not.
fn is_counted(read: &Read, informer: &Informer) -> bool {
    let is_cheap = match &read.plan {
        Plan::Get { .. } => true,
        // The API server lists the metadata of many objects for more than their cells. A list of a
        // shard must not be forwarded, and the proof of a custom resource has two parts.
        Plan::List { .. } => {
            read.representation.view.is_cells_only() && !read.is_of_shard() && !read.spec.custom
        }
        Plan::Watch { .. } => false,
    };
    is_cheap && read.need == Need::MostRecent && !informer.serves_sessions()
}

fn is_crowd(calls: usize) -> bool {
    calls >= LARGE_GROUP as usize
}

/// Returns the key of the cache. A later informer may have the address of one that has ended. Its
/// reads count as well.
fn address(informer: &Arc<Informer>) -> usize {
    Arc::as_ptr(informer) as usize
}

// === impl WaitingRead ===

impl WaitingRead {
    /// Returns true if the read was in a crowd when it arrived: with it, as many waited as make
    /// a group of callers large ([`LARGE_GROUP`]).
    pub(in crate::server) fn is_in_crowd(&self) -> bool {
        self.is_in_crowd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::KnownCaller;

    fn object(number: u32) -> Option<ObjectKey> {
        Some(ObjectKey::new(Some("n"), &number.to_string()))
    }

    fn user() -> Caller {
        Caller::Known(Arc::new(KnownCaller::for_tests(1)))
    }

    #[test]
    fn many_different_gets_of_one_cache_are_a_crowd() {
        for (caller, are_identical, first_in_crowd) in [
            // A call for each object.
            (Caller::Trusted, false, Some(8)),
            // One call for all.
            (Caller::Trusted, true, None),
            // A call for each GET, because each has the credentials of its caller.
            (user(), true, Some(8)),
        ] {
            let crowds = Crowds::default();
            // GETs of another cache do not count.
            let others: Vec<_> = (0..20)
                .map(|number| crowds.count(2, &caller, object(number)))
                .collect();
            let mut waiting = Vec::new();
            for number in 1..=20 {
                let read = object(if are_identical { 0 } else { number });
                waiting.push(crowds.count(1, &caller, read));
                let is_in_crowd = waiting.last().is_some_and(WaitingRead::is_in_crowd);
                let expected = first_in_crowd.is_some_and(|first| number >= first);
                assert_eq!(is_in_crowd, expected, "GET {number}, {are_identical}");
            }
            drop((waiting, others));
            assert!(crowds.calls.is_empty());
        }
    }

    #[test]
    fn a_get_that_has_its_answer_is_in_no_crowd() {
        let crowds = Crowds::default();
        let count = |number| crowds.count(1, &Caller::Trusted, object(number));
        let mut waiting: Vec<_> = (0..8).map(count).collect();
        assert!(waiting[7].is_in_crowd());
        waiting.truncate(6);
        waiting.extend([count(8), count(9)]);
        let [seventh, eighth] = [6, 7].map(|index| waiting[index].is_in_crowd());
        assert!(!seventh && eighth);
    }
}
