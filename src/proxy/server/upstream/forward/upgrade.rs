//! Upgraded connections: bytes are copied both ways until one side ends.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use kubefan_core::body::BodyGuard;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::PendingUpgrade;

use super::forwarded_watch::ForwardedWatch;
use crate::ledger::{Account, Charge, MemoryKind, closed};
use crate::net::FileSlot;
use crate::server::answers::ending::Ending;
use crate::server::answers::rescue::Refused;
use crate::server::limits::shares::RequestShare;
use crate::server::request::Exchange;

/// Bytes that an upgraded connection holds: the buffers for copying bytes both ways, the buffers of
/// both connections, and the task.
pub(super) const UPGRADE_BYTES: u64 = 48 << 10;

/// What an upgraded connection holds until it ends.
pub(super) struct HeldByUpgrade {
    _charge: Option<Charge>,
    /// The place among the requests of its user.
    _share: Option<RequestShare>,
    /// The upgraded connection to the API server is a second file.
    _file: Option<FileSlot>,
    ending: Option<Arc<Ending>>,
}

impl HeldByUpgrade {
    /// Takes what the upgrade of `exchange` needs.
    ///
    /// # Errors
    /// If memory is short, or no file is free.
    pub(super) fn of(exchange: &Exchange) -> Result<Self, Refused> {
        let client = &exchange.client;
        Ok(Self {
            _charge: client.charge(MemoryKind::Upgrade, UPGRADE_BYTES)?,
            _share: exchange.share.clone(),
            _file: client.connection.take_file()?,
            ending: exchange.ending.clone(),
        })
    }

    /// Notes the bytes that the client was sent.
    fn sent(&self, bytes: u64) {
        if let Some(ending) = &self.ending {
            ending.sent(bytes);
        }
    }
}

/// Copies bytes between both sides of an upgraded connection, in a task of `shutdown` that owns
/// `held`. A drain ends a watch at its scheduled moment; exec and similar upgrades may use the
/// complete grace period. All upgrades end when the right to them is lost.
pub(super) fn join_upgrade(
    shutdown: &Shutdown,
    upgrade: PendingUpgrade,
    mut watch: Option<ForwardedWatch>,
    account: Option<Arc<Account>>,
    held: Option<HeldByUpgrade>,
) {
    shutdown.spawn(async move {
        let to_create = watch.as_mut().and_then(|watch| watch.to_create.take());
        let not_created = async {
            match to_create {
                Some(right) => right.lost().await,
                None => pending().await,
            }
        };
        let mut joined = pin!(upgrade.join());
        let joined = poll_fn(|cx| {
            if let Some(watch) = &mut watch {
                if watch.poll_end(cx).is_ready() {
                    return Poll::Ready(Ok(0));
                }
                if watch.is_held() {
                    return Poll::Pending;
                }
            }
            joined.as_mut().poll(cx).map_ok(|bytes| bytes.received)
        });
        tokio::select! {
            joined = joined => match (joined, &held) {
                (Ok(received), Some(held)) => held.sent(received),
                (Ok(_), None) => {}
                (Err(error), _) => tracing::debug!(%error, "upgraded connection broke"),
            },
            () = not_created => {}
            () = closed(account.as_deref()) => {
                tracing::debug!("memory is short, and this upgraded connection holds the most");
            }
        }
        drop(held);
    });
}
