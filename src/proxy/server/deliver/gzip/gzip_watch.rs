//! GzipWatchBody: compresses the body of a watch that begins with all objects.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt;
use http_body::{Body, Frame};
use kubefan_core::body::BoxError;
use kubefan_core::concurrency::CoopBudget;
use tokio::time::Instant;

use super::compress::BYTE_UNITS;
use super::initial_events::InitialEvents;
use super::member;
use super::member::{CompressingText, LONGEST_AT_ONCE, SharedMember};
use crate::ledger::{Account, Short};
use crate::server::deliver::PolledFrame;
use crate::server::deliver::watch_body::WatchBody;

/// Sends a watch as gzip, in complete members. The initial events are compressed once for all
/// watches that begin with equal objects. A later chunk is compressed once for all watches of a
/// thread that send it.
pub(crate) struct GzipWatchBody {
    watch: WatchBody,
    /// The initial events that are not sent yet; `None` if `watch` sends all that is left.
    initial: Option<InitialEvents>,
    /// A later chunk that is being compressed, because it is long.
    long: Option<CompressingText>,
    account: Option<Arc<Account>>,
    budget: CoopBudget,
}

/// Compresses the body of a watch; `frame` is its only event.
///
/// # Errors
///
/// If the compressor reports an internal error.
pub(crate) fn compressed_event(frame: Bytes) -> io::Result<Bytes> {
    let member = member::compressed(&[frame])?;
    Ok(member.charged(None).unwrap_or_default())
}

impl GzipWatchBody {
    /// Creates the body that sends the events of `watch` as gzip, charged to `account`; `watch`
    /// itself must not be charged to the account. If `initial` is given, it has the initial events,
    /// and `watch` does not send them.
    pub(crate) fn new(
        watch: WatchBody,
        initial: Option<InitialEvents>,
        account: Option<Arc<Account>>,
    ) -> Self {
        Self {
            watch,
            initial,
            long: None,
            account,
            budget: CoopBudget::new(),
        }
    }

    /// Returns the next compressed chunk; `None` after the last event.
    fn poll_member(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<SharedMember>, BoxError>> {
        ready!(self.budget.poll_proceed(cx));
        if let Some(long) = &mut self.long {
            let compressed = ready!(long.poll_unpin(cx));
            self.long = None;
            let member = compressed?.member;
            self.budget.charge(member.len());
            return Poll::Ready(Ok(Some(member)));
        }
        if let Some(member) = ready!(self.poll_initial(cx))? {
            return Poll::Ready(Ok(Some(member)));
        }
        let polled = Pin::new(&mut self.watch).poll_frame(cx);
        if polled.is_pending() {
            self.budget.renew();
        }
        let Some(frame) = ready!(polled).transpose()? else {
            return Poll::Ready(Ok(None));
        };
        let text = frame.into_data().unwrap_or_default();
        if text.len() > LONGEST_AT_ONCE {
            self.long = Some(member::compressing(text));
            return self.poll_member(cx);
        }
        let (member, was_made) = member::compressed_once(&text)?;
        self.budget.charge(if was_made {
            text.len() * BYTE_UNITS
        } else {
            member.len()
        });
        Poll::Ready(Ok(Some(member)))
    }

    /// Returns the next compressed chunk of initial events; `None` if none is left.
    fn poll_initial(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<SharedMember>, BoxError>> {
        loop {
            // Initial events are useless if the changes after them can't follow.
            if self.initial.is_some()
                && (self.watch.is_over(cx, Instant::now()) || self.watch.has_lost_start())
            {
                self.initial = None;
            }
            let Some(initial) = &mut self.initial else {
                return Poll::Ready(Ok(None));
            };
            // If the objects were revoked, the watch notices that and expires.
            let Some((chunk, is_first)) = ready!(initial.poll_next(cx))? else {
                self.initial = None;
                return Poll::Ready(Ok(None));
            };
            self.budget.charge(if is_first {
                chunk.units()
            } else {
                chunk.member.as_ref().map_or(0, SharedMember::len)
            });
            if chunk.is_last {
                self.initial = None;
            }
            self.watch.note_sent(chunk.events);
            if let Some(member) = &chunk.member {
                return Poll::Ready(Ok(Some(member.clone())));
            }
            ready!(self.budget.poll_proceed(cx));
        }
    }
}

impl Body for GzipWatchBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = self.get_mut();
        loop {
            let member = match ready!(this.poll_member(cx)) {
                Ok(Some(member)) => member,
                Ok(None) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            let account = this.account.as_ref();
            match member.charged(account) {
                Ok(gzip) => return Poll::Ready(Some(Ok(Frame::data(gzip)))),
                Err(Short::Connection | Short::Process) => {
                    this.initial = None;
                    this.watch.expire();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
