//! The right to a request without an end, which is judged again while the request lasts.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use kubefan_core::body::BodyGuard;
use tokio::time::sleep;

use crate::identity::{AccessControl, Attributes, Caller, KnownCaller, OpenWatch, Verdict};
use crate::ledger::{Charge, MemoryKind, Short};
use crate::server::access::attributes;
use crate::server::answers::ending::Ending;
use crate::server::answers::record::End;
use crate::server::request::{Exchange, RequestInfo, Verb};

/// Bytes of attributes that the charge of a watch includes.
const INCLUDED: usize = 1 << 10;
/// The connections to pods that also require the right to `create` them if a client opens one by a
/// GET (Kubernetes 1.35 and later).
const CREATED: [&str; 3] = ["attach", "exec", "portforward"];
/// The pauses between the questions about the right to `create`. kubefan asks again after each of
/// them, until an answer is yes, because a question may fail.
const ASK_AGAIN_AFTER: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// Ends its owner when the caller has lost the right.
pub(in crate::server) struct Right {
    watch: OpenWatch,
    ending: Option<Arc<Ending>>,
    /// The charge for attributes with long names or selectors, which are held as long as the right.
    _charge: Option<Charge>,
}

/// The right to `create` a connection to a pod that a client has opened by a GET.
pub(super) struct RightToCreate {
    access: AccessControl,
    caller: Arc<KnownCaller>,
    attributes: Attributes,
}

impl Right {
    /// Returns the right to the request of `exchange`, if the request may last without an end. A
    /// cache or the API server answers it. Returns `None` if kubefan has neither the caller's user
    /// nor its token.
    ///
    /// # Errors
    /// If the account of the connection has no room for the attributes.
    pub(in crate::server) fn of(
        access: &AccessControl,
        exchange: &Exchange,
    ) -> Result<Option<Self>, Short> {
        let (info, caller, client) = (&exchange.info, &exchange.caller, &exchange.client);
        let may_last = info.is_resource_request && info.is_long_running();
        if !may_last || !matches!(caller, Caller::Known(_) | Caller::Unnamed(_)) {
            return Ok(None);
        }
        let attributes = attributes(info);
        let charge = match attributes.weight() {
            bytes if bytes > INCLUDED => client.charge(MemoryKind::Watch, bytes as u64)?,
            _ => None,
        };
        let watch = access.keep_judging(caller, attributes, client.abort.as_ref());
        Ok(watch.map(|watch| Self {
            watch,
            ending: exchange.ending.clone(),
            _charge: charge,
        }))
    }
}

impl BodyGuard for Right {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lost = self.watch.poll_end(cx);
        if lost.is_ready()
            && let Some(ending) = &self.ending
        {
            ending.note(End::RightLost);
        }
        lost
    }

    fn is_held(&self) -> bool {
        self.watch.is_held()
    }
}

impl RightToCreate {
    /// Returns `None` if the request that `info` describes needs no such right, or if kubefan has
    /// not determined the user of its caller.
    pub(super) fn of(access: &AccessControl, info: &RequestInfo, caller: &Caller) -> Option<Self> {
        let Caller::Known(caller) = caller else {
            return None;
        };
        let is_pod = info.group.is_empty() && info.resource == "pods";
        let is_needed = is_pod && info.verb == Verb::Get && CREATED.contains(&&*info.subresource);
        is_needed.then(|| Self {
            access: access.clone(),
            caller: Arc::clone(caller),
            attributes: Attributes {
                verb: "create".to_owned(),
                ..attributes(info)
            },
        })
    }

    /// Waits until the caller has lost the right. If the caller did not have the right soon after
    /// the connection was opened, the API server did not require it, and this never completes.
    pub(super) async fn lost(self) {
        let Self {
            access,
            caller,
            attributes,
        } = self;
        let right = is_allowed(|| access.may_read(&caller, &attributes))
            .await
            .then(|| access.keep_judging(&Caller::Known(caller), attributes, None));
        match right.flatten() {
            Some(mut right) => poll_fn(|cx| right.poll_end(cx)).await,
            None => pending().await,
        }
    }
}

/// Calls `ask` up to four times, with pauses. Returns true as soon as an answer is yes.
async fn is_allowed<F: Future<Output = Verdict>>(ask: impl Fn() -> F) -> bool {
    for pause in ASK_AGAIN_AFTER {
        if ask().await == Verdict::Allowed {
            return true;
        }
        sleep(pause).await;
    }
    ask().await == Verdict::Allowed
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_right_is_asked_for_again_until_there_is_a_yes() {
        for (answers, expected, asked, seconds) in [
            (&[Verdict::Allowed][..], true, 1, 0),
            (&[Verdict::NotAllowed, Verdict::Allowed], true, 2, 1),
            (
                &[Verdict::Busy, Verdict::Stale, Verdict::Allowed],
                true,
                3,
                6,
            ),
            (&[Verdict::NotAllowed; 4], false, 4, 36),
        ] {
            let began = Instant::now();
            let count = Cell::new(0);
            let ask = async || {
                let answer = answers[count.get()];
                count.set(count.get() + 1);
                answer
            };
            assert_eq!(is_allowed(ask).await, expected, "{answers:?}");
            assert_eq!(count.get(), asked, "{answers:?}");
            assert_eq!(began.elapsed().as_secs(), seconds, "{answers:?}");
        }
    }
}
