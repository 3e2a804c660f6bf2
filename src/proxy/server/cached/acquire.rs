//! Finds the informer that can answer a read, starts it if necessary, and waits for it.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::Status;
use kubefan_core::cache::Reader;
use kubefan_core::informer::{Informer, InformerSet, LiveRestMapper, StartError};
use tokio::time::{Instant, sleep, timeout};

use super::miss::Miss;
use crate::server::decide::{Need, Plan, Read, Reason};

/// How long a read waits for an informer's first list.
pub(super) const SYNC_WAIT: Duration = Duration::from_secs(3);
/// How long a read waits for a resource version that the cache has not reached.
const CATCH_UP_WAIT: Duration = Duration::from_millis(100);
/// Pause before the next lookup after an informer has ended; it may still be in the set.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// How the informer for a read is found.
enum Search {
    /// Only a ready informer will do. Without one, the read is forwarded for this reason.
    ReadyOr(Reason),
    /// The informer is started if necessary, and its first list is waited for.
    Start,
}

/// Returns how the informer for `read` is found. A GET starts no informer, and neither does a Table
/// or any read unless `may_start` is true.
fn search(read: &Read, may_start: bool) -> Search {
    match (&read.plan, read.need) {
        _ if read.representation.view.is_table() => Search::ReadyOr(Reason::NotCached),
        (Plan::Get { .. }, _) => Search::ReadyOr(Reason::NotCached),
        (_, Need::At(_)) if !read.may_start_informer() => Search::ReadyOr(Reason::PastState),
        _ if !may_start => Search::ReadyOr(Reason::NotCached),
        _ => Search::Start,
    }
}

/// Returns the informer for `read`, after its first list. If the read needs a resource version that
/// the cache has not reached, this function also waits a moment for it.
///
/// A consistent LIST waits for the first list even if it is forwarded in the end: its answer is then
/// at least as new as the cache's first state, so a watch that starts from the answer finds its
/// start in the event log.
///
/// # Errors
///
/// A [`Miss`] if no informer can answer.
pub(super) async fn acquire(
    informers: &InformerSet,
    rest_mapper: &LiveRestMapper,
    read: &Read,
    may_start: bool,
) -> Result<Arc<Informer>, Miss> {
    let informer = match search(read, may_start) {
        Search::ReadyOr(reason) => {
            let namespace = read.namespace.as_deref();
            let ready = informers.get_ready_in(&read.spec, &read.scope, namespace);
            ready.ok_or(reason)?
        }
        Search::Start => {
            // Boxed, so that the futures of GETs are short.
            let synced = Box::pin(synced_informer(informers, rest_mapper, read));
            match timeout(SYNC_WAIT, synced).await {
                Ok(informer) => informer?,
                Err(_) => return Err(not_synced(informers, read)),
            }
        }
    };
    catch_up(informer.reader(), read).await;
    Ok(informer)
}

/// Returns the informer that [`acquire`] would return now; `None` if it would start one. Starts no
/// informer, and waits for nothing.
///
/// # Errors
///
/// The [`Reason`] if no informer can answer.
pub(super) fn peek(
    informers: &InformerSet,
    rest_mapper: &LiveRestMapper,
    read: &Read,
    may_start: bool,
) -> Result<Option<Arc<Informer>>, Reason> {
    let (spec, namespace) = (&read.spec, read.namespace.as_deref());
    match search(read, may_start) {
        Search::ReadyOr(reason) => {
            let ready = informers.peek_in(spec, &read.scope, namespace);
            ready.map(Some).ok_or(reason)
        }
        Search::Start => {
            check_definition(rest_mapper, read)?;
            let found = informers.peek_or_start_in(spec, &read.scope, namespace);
            found.map_err(refusal_reason)
        }
    }
}

/// Returns the miss for `read` if its informer has not completed its first list in time. Only a
/// consistent LIST is forwarded: a forwarded WATCH would stay with the API server for a long time.
fn not_synced(informers: &InformerSet, read: &Read) -> Miss {
    match (&read.plan, read.need) {
        (Plan::List { .. }, Need::MostRecent) => {
            let unsynced =
                informers.get_or_start_in(&read.spec, &read.scope, read.namespace.as_deref());
            unsynced.map_or(Miss::Forward(Reason::Unproven), |informer| {
                Miss::without_proof(&informer)
            })
        }
        _ => Status::storage_reinitializing(Status::random_retry_seconds()).into(),
    }
}

/// Returns the informer for `read` once it has completed its first list.
async fn synced_informer(
    informers: &InformerSet,
    rest_mapper: &LiveRestMapper,
    read: &Read,
) -> Result<Arc<Informer>, Miss> {
    let spec = &read.spec;
    loop {
        check_definition(rest_mapper, read)?;
        let informer = informers.get_or_start_in(spec, &read.scope, read.namespace.as_deref());
        let informer = informer.map_err(refusal_reason)?;
        if informer.reader().ready().await {
            return Ok(informer);
        }
        // The informer ended. The next lookup finds its successor, or the reason why it ended.
        sleep(RETRY_PAUSE).await;
    }
}

/// Checks that an informer may still be started as `read` was planned. The resource's definition may
/// have changed by now, and with it the meaning of selectors. The rules may have changed, too.
fn check_definition(rest_mapper: &LiveRestMapper, read: &Read) -> Result<(), Reason> {
    let spec = &read.spec;
    let current = rest_mapper.spec_or_reason(&spec.resource.gvr, spec.format);
    let current = current.map_err(Reason::from)?;
    let is_permitted = current.settings.scopes().contains(&read.scope);
    let is_same = current.settings.caches_like(&spec.settings) && current.answers_like(spec);
    if is_permitted && is_same {
        Ok(())
    } else {
        Err(Reason::NotCached)
    }
}

/// Returns why a read is forwarded if its informer can't be started.
fn refusal_reason(refused: StartError) -> Reason {
    match refused {
        StartError::Forbidden => Reason::Forbidden,
        StartError::NotAcceptable => Reason::NoSuchFormat,
        // Discovery still has the resource, so this ends when discovery is up to date again.
        StartError::Gone => Reason::NotCached,
        StartError::ShuttingDown => Reason::ShuttingDown,
    }
}

/// Waits a moment for the cache of `reader` to reach the version that `read` needs. Later stages
/// check whether it did.
pub(super) async fn catch_up(reader: &Reader, read: &Read) {
    let has_snapshot = |version| {
        let selection = read.selection();
        selection.is_some_and(|selection| reader.snapshot_at(version, selection).is_some())
    };
    let needed = match read.need {
        Need::NotOlderThan(needed) => needed,
        // The API server answers other reads of an exact version. A pinned snapshot may have a
        // version that the cache has not reached.
        Need::At(needed) if read.is_of_shard() && !has_snapshot(needed) => needed,
        Need::At(_) | Need::MostRecent => return,
    };
    let deadline = Instant::now() + CATCH_UP_WAIT;
    reader.wait_for(needed, deadline).await;
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::ResourceVersion;

    use super::*;
    use crate::server::cached::read::tests::{cache_at, list_of_shard};

    #[tokio::test(start_paused = true)]
    async fn a_shard_at_a_later_version_waits_for_it() {
        let waited = |reader: Reader, query: &'static str| async move {
            let started = Instant::now();
            catch_up(&reader, &list_of_shard(query)).await;
            started.elapsed()
        };
        let exactly_105 = "resourceVersion=105&resourceVersionMatch=Exact";
        let (writer, reader) = cache_at(104);
        assert_eq!(waited(reader.clone(), "").await, Duration::ZERO);
        assert_eq!(waited(reader.clone(), exactly_105).await, CATCH_UP_WAIT);
        // The next page of a list that was proven at a version after the cache's.
        let snapshot = reader.snapshot().expect("the cache is ready");
        let proven = reader.proven_at(&snapshot, ResourceVersion(105), &Arc::default());
        reader.pin(&proven);
        assert_eq!(waited(reader, exactly_105).await, Duration::ZERO);
        drop(writer);
    }
}
