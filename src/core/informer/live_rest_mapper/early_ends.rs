//! Relists custom resources after the API server has ended their watches early, if their objects
//! may have another representation.
//!
//! The API server ends the watches of a custom resource when its definition has changed, but also
//! all watches when it stops. After a stop a resume is sufficient, and lists of all custom
//! resources together would be a burden. So each watch is resumed. The definition, as it is after
//! the end of the watch, decides whether the resource is listed again as well. A change of the
//! definition that is seen later causes a separate relist.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::LiveRestMapper;
use super::upgrade::{RELIST_PAUSE_MS, pause};
use crate::informer::{Informer, InformerSet, ProofError, ProofRequest};

/// A watch that ends so soon after the list that it follows may be of the time before a change that
/// was listed: the API server ends such watches after about a second.
const SOON_AFTER_LIST: Duration = Duration::from_secs(3);
/// Pause before the definitions are read again after a failure.
const RETRY_PAUSE_MS: Range<u64> = 500..1500;

/// Relists each informer of `informers` after an early end of its watch, if necessary. Runs until
/// the future is dropped.
pub(super) async fn relist_after_early_ends(informers: &InformerSet) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let examine = async {
        loop {
            informers.inner.early_end.notified().await;
            let all = informers.all().into_iter();
            let ended: Vec<_> = all
                .filter_map(|informer| Some((informer.take_early_end()?, informer)))
                .collect();
            let is_known = reads_definitions(informers).await;
            for (ended_at, informer) in ended {
                if informer.is_listed_after(ended_at) {
                    continue;
                }
                if is_known && !may_be_redefined(informers, &informer, ended_at) {
                    let resource = &informer.resource().gvr;
                    tracing::debug!(%resource, "an early end without a change of the definition");
                    continue;
                }
                if informer.distrust(ended_at) && sender.send(informer).is_err() {
                    return;
                }
            }
        }
    };
    tokio::join!(
        examine,
        relist_in_turn(receiver, Informer::relist_if_queued)
    );
}

/// Relists one informer after another by `relist`, with a pause after each. There is no pause if
/// `relist` returns false: the informer was listed in the meantime, because a reader waited for it
/// or its watch could not be resumed.
async fn relist_in_turn<I>(
    mut queued: mpsc::UnboundedReceiver<Arc<I>>,
    relist: impl Fn(&I) -> bool,
) {
    while let Some(informer) = queued.recv().await {
        let is_relisted = relist(&informer);
        drop(informer);
        if is_relisted {
            pause(RELIST_PAUSE_MS).await;
        }
    }
}

/// Waits until the cache of the definitions is as new as this call, and returns true. Returns false
/// if there is no such cache, or no proof of it. Afterwards, every change in this cache was noticed,
/// or will be noticed within a moment.
async fn reads_definitions(informers: &InformerSet) -> bool {
    loop {
        let definitions = LiveRestMapper::definitions();
        let all = informers.all().into_iter();
        let cache = all.filter(|informer| informer.resource().gvr == definitions);
        let Some(cache) = cache.last() else {
            return false;
        };
        let everything = ProofRequest::default();
        let proof = cache.prove(everything, Instant::now(), Duration::ZERO);
        match proof.await {
            Ok(_) => return true,
            // No proof will come soon.
            Err(ProofError::Isolated | ProofError::UpstreamUnproven) => return false,
            Err(error) => tracing::debug!(%error, "the definitions are not known now"),
        }
        pause(RETRY_PAUSE_MS).await;
    }
}

/// Returns true if the watch of `informer` that ended at `ended_at` may have been of another
/// representation than the objects have now, as far as the definition shows.
fn may_be_redefined(informers: &InformerSet, informer: &Informer, ended_at: Instant) -> bool {
    let gvr = &informer.resource().gvr;
    let changed_at = informers.inner.definition_changes.before(gvr, ended_at);
    let list_began = informer.list_began();
    changed_at.is_some()
        || list_began.is_none_or(|list_began| ended_at < list_began + SOON_AFTER_LIST)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn relists_follow_one_after_another_and_a_needless_one_delays_none() {
        let (sender, receiver) = mpsc::unbounded_channel();
        for number in 0..6 {
            sender.send(Arc::new(number)).expect("a receiver");
        }
        drop(sender);
        let relists = RefCell::new(Vec::new());
        let relist = |number: &i32| {
            let is_necessary = number % 3 != 1;
            if is_necessary {
                relists.borrow_mut().push((*number, Instant::now()));
            }
            is_necessary
        };
        relist_in_turn(receiver, relist).await;
        let relists = relists.into_inner();
        let numbers: Vec<_> = relists.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 2, 3, 5]);
        for pair in relists.windows(2) {
            let pause = pair[1].1.duration_since(pair[0].1).as_millis() as u64;
            assert!(RELIST_PAUSE_MS.contains(&pause), "{pause} ms");
        }
    }
}
