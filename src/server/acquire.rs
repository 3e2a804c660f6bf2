//! The informer that can answer a read, waited for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout;

use crate::api::ResourceVersion;
use crate::api::Status;
use crate::informer::Informer;
use crate::informer::InformerSet;
use crate::informer::LiveRestMapper;
use crate::informer::StartError;

use super::decide::Need;
use super::decide::Plan;
use super::decide::Read;
use super::decide::Reason;
use super::miss::Miss;

/// How long a read waits for an informer's first list.
const SYNC_WAIT: Duration = Duration::from_secs(3);
/// How long a read waits for a resource version that the cache has not reached.
const CATCH_UP_WAIT: Duration = Duration::from_millis(100);
/// How long an informer that ended may still be found.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// The informer for `read`, started if need be, as far along as it needs or will be soon.
///
/// A GET starts none. A consistent read waits for the first list as well, even where it is forwarded
/// in the end: what it returns is then at least as new as the cache's first state, so a watch from
/// there finds its start in the log.
///
/// # Errors
///
/// [`Miss`] where no informer can answer.
pub(super) async fn acquire(
    informers: &InformerSet,
    rest_mapper: &LiveRestMapper,
    read: &Read,
) -> Result<Arc<Informer>, Miss> {
    let ready = || informers.get_ready(&read.spec, read.namespace.as_deref());
    let informer = match (&read.plan, read.need) {
        (Plan::Get { .. }, _) => ready().ok_or(Reason::NotCached)?,
        (_, Need::At(_)) => ready().ok_or(Reason::PastState)?,
        _ => match timeout(SYNC_WAIT, synced_informer(informers, rest_mapper, read)).await {
            Ok(informer) => informer?,
            Err(_) => return Err(not_synced(informers, read)),
        },
    };
    if let Need::NotOlderThan(needed) = read.need {
        catch_up(&informer, needed).await;
    }
    Ok(informer)
}

/// How a read goes on whose informer has not listed in time. Only a LIST may be forwarded: a watch
/// stays with the API server for long.
fn not_synced(informers: &InformerSet, read: &Read) -> Miss {
    match (&read.plan, read.need) {
        (Plan::List { .. }, Need::MostRecent) => {
            let filling = informers.get_or_start(&read.spec, read.namespace.as_deref());
            filling.map_or(Miss::Forward(Reason::Unproven), |informer| {
                Miss::without_proof(&informer)
            })
        }
        _ => Status::storage_reinitializing(1).into(),
    }
}

/// The informer for `read` after its first list.
async fn synced_informer(
    informers: &InformerSet,
    rest_mapper: &LiveRestMapper,
    read: &Read,
) -> Result<Arc<Informer>, Miss> {
    let spec = &read.spec;
    loop {
        // Its definition may have changed meanwhile, and with it what selectors mean.
        let current = rest_mapper.informer_spec(&spec.resource.gvr, spec.format);
        if current.is_none_or(|current| current.fields != spec.fields) {
            return Err(Miss::Forward(Reason::NotCacheable));
        }
        let informer = informers.get_or_start(spec, read.namespace.as_deref());
        let informer = informer.map_err(|refused| match refused {
            StartError::Forbidden => Reason::Forbidden,
            StartError::NotAcceptable => Reason::NoSuchFormat,
            StartError::Gone => Reason::NotCacheable,
            StartError::ShuttingDown => Reason::ShuttingDown,
        })?;
        if informer.reader().ready().await {
            return Ok(informer);
        }
        // It ended: look again for what it ended with, or for its successor.
        sleep(RETRY_PAUSE).await;
    }
}

/// Waits a little for events on the way; what has not arrived then is the API server's to answer.
async fn catch_up(informer: &Informer, needed: ResourceVersion) {
    let reader = informer.reader();
    reader
        .wait_for(needed, Instant::now() + CATCH_UP_WAIT)
        .await;
}
