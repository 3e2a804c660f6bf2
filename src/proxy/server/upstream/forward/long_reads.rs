//! Remembers the reads that had an answer too long to be shared, and limits their calls.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::read_key::ReadKey;

/// Upper limit of concurrent calls for one long read, for callers without another limit.
const MAX_CALLS: usize = 2;
/// How long a read is remembered after an answer to it was too long.
const MEMORY: Duration = Duration::from_secs(60);
/// Upper limit of remembered reads.
const MAX_READS: usize = 1024;

/// The reads that had an answer too long to be shared. Without this memory, each group of callers
/// would receive the beginning of a long answer only to find out its length again.
#[derive(Debug, Default)]
pub(super) struct LongReads {
    /// By the hash of the read's key, because a key may be long. If another read has an equal hash,
    /// it is not shared either, which does no harm.
    reads: Mutex<HashMap<u64, LongRead>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct LongRead {
    permits: Arc<Semaphore>,
    expires_at: Instant,
}

impl LongReads {
    /// Returns the permits for calls of the read `key`, if the read is remembered as long.
    pub(super) fn permits(&self, key: &ReadKey) -> Option<Arc<Semaphore>> {
        let reads = self.reads.lock();
        let read = reads.get(&self.hasher.hash_one(key))?;
        (Instant::now() < read.expires_at).then(|| Arc::clone(&read.permits))
    }

    /// Remembers that the answer to the read `key` is long. Returns the permits for its calls.
    pub(super) fn remember(&self, key: &ReadKey) -> Arc<Semaphore> {
        let hash = self.hasher.hash_one(key);
        let expires_at = Instant::now() + MEMORY;
        let mut reads = self.reads.lock();
        if !reads.contains_key(&hash) && reads.len() >= MAX_READS {
            forget_oldest(&mut reads);
        }
        let read = reads.entry(hash).or_insert_with(|| LongRead {
            permits: Arc::new(Semaphore::new(MAX_CALLS)),
            expires_at,
        });
        read.expires_at = expires_at;
        Arc::clone(&read.permits)
    }
}

fn forget_oldest(reads: &mut HashMap<u64, LongRead>) {
    let oldest = reads.iter().min_by_key(|(_, read)| read.expires_at);
    if let Some(hash) = oldest.map(|(hash, _)| *hash) {
        reads.remove(&hash);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kubefan_core::body;

    use super::*;
    use crate::server::request::RequestInfo;

    fn key(number: usize) -> ReadKey {
        let request = Request::get(format!("/api/v1/pods?limit={number}"));
        let request = request.body(body::empty()).expect("a request");
        let info = RequestInfo::parse(request.method(), request.uri().path(), "");
        ReadKey::of(&request, &info).expect("a key")
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_read_is_remembered_for_a_minute_after_its_last_long_answer() {
        let reads = LongReads::default();
        assert!(reads.permits(&key(0)).is_none());
        let permits = reads.remember(&key(0));
        tokio::time::advance(MEMORY / 2).await;
        assert!(Arc::ptr_eq(&permits, &reads.remember(&key(0))));
        tokio::time::advance(MEMORY - Duration::from_millis(1)).await;
        let remembered = reads.permits(&key(0)).expect("remembered");
        assert!(Arc::ptr_eq(&permits, &remembered));
        assert!(reads.permits(&key(1)).is_none());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(reads.permits(&key(0)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_read_is_forgotten_when_there_are_too_many() {
        let reads = LongReads::default();
        for number in 0..=MAX_READS {
            reads.remember(&key(number));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(reads.permits(&key(0)).is_none());
        assert!(reads.permits(&key(1)).is_some());
        assert!(reads.permits(&key(MAX_READS)).is_some());
        assert_eq!(reads.reads.lock().len(), MAX_READS);
    }
}
