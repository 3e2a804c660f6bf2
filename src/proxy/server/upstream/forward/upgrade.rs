//! Upgraded connections: bytes are copied both ways until one side ends.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use kubefan_core::body::BodyGuard;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::PendingUpgrade;

use super::forwarded_watch::ForwardedWatch;
use crate::ledger::{Account, Charge, closed};
use crate::net::FileSlot;
use crate::server::limits::shares::RequestShare;

/// Bytes that an upgraded connection holds: the buffers for copying bytes both ways, the buffers of
/// both connections, and the task.
pub(super) const UPGRADE_BYTES: u64 = 48 << 10;

/// What an upgraded connection holds until it ends.
pub(super) struct HeldByUpgrade {
    pub(super) _charge: Option<Charge>,
    pub(super) _share: Option<RequestShare>,
    pub(super) _file: Option<FileSlot>,
}

/// Copies bytes between both sides of an upgraded connection, in a task of `shutdown` that owns
/// `held`. A drain ends a watch at its scheduled moment; exec and similar upgrades may use the
/// complete grace period. All upgrades end when the right to them is lost.
pub(super) fn join_upgrade(
    shutdown: &Shutdown,
    upgrade: PendingUpgrade,
    mut watch: Option<ForwardedWatch>,
    account: Option<Arc<Account>>,
    held: HeldByUpgrade,
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
                    return Poll::Ready(Ok(()));
                }
                if watch.is_held() {
                    return Poll::Pending;
                }
            }
            joined.as_mut().poll(cx).map_ok(drop)
        });
        tokio::select! {
            joined = joined => {
                if let Err(error) = joined {
                    tracing::debug!(%error, "upgraded connection broke");
                }
            }
            () = not_created => {}
            () = closed(account.as_deref()) => {
                tracing::debug!("memory is short, and this upgraded connection holds the most");
            }
        }
        drop(held);
    });
}
