//! Rules that look at all operations of a client.

use super::operation_rules::per_minute;
use super::text::{duration, objects};
use super::{Advice, AdviceKind};
use crate::bill::table::{ClientUsage, Count, Counts, OperationUsage};
use crate::text::number;

/// Watches per minute that end at once and are a loop.
const REOPENED: u64 = 20;
/// The fewest short watches that are a loop, however short the time.
const LEAST_REOPENED: u64 = 8;
/// Reads in ten minutes that were forwarded for their media type.
const OTHER_FORMAT: u64 = 10;
/// Answers with 403 per minute that are a loop.
const DENIED: u64 = 30;
/// Answers with 401 per minute that are a loop.
const UNAUTHORIZED: u64 = 30;
/// The fewest 401s and 403s that are a loop, however short the time.
const LEAST_REFUSED: u64 = 10;
/// Answers in ten minutes that were broken off because their client read too slowly.
const STALLS: u64 = 3;

/// Returns the advice about a client as a whole.
pub(super) fn advise(usage: &ClientUsage) -> impl Iterator<Item = Advice> {
    let (minute, ten_minutes) = (&usage.minute, &usage.ten_minutes);
    [
        watch_reopened(usage, minute),
        slow_reader(usage),
        other_format(ten_minutes),
        denied_reads(usage, minute),
        wrong_credentials(usage, minute),
        stalled_bodies(ten_minutes),
    ]
    .into_iter()
    .flatten()
}

/// Returns the operation with the largest count in the last minute.
fn most(usage: &ClientUsage, count: Count) -> Option<&OperationUsage> {
    let operations = usage.operations.iter();
    operations.max_by_key(|operation| operation.minute.get(count))
}

fn watch_reopened(usage: &ClientUsage, minute: &Counts) -> Option<Advice> {
    let short = minute.get(Count::ShortWatches);
    let rate = per_minute(usage, minute, Count::ShortWatches);
    let open = usage.open_watches;
    let worst = most(usage, Count::ShortWatches)?;
    let is_loop = short >= LEAST_REOPENED && rate >= REOPENED && short >= open;
    is_loop.then(|| Advice {
        kind: AdviceKind::WatchReopened,
        evidence: format!(
            "{} watches a minute end within 5 s, mostly of {}",
            number(rate),
            objects(&worst.operation),
        ),
        fix: "keep the watch open for minutes: do not set a short timeoutSeconds, read until the \
              end, and wait before the next watch after an error"
            .to_owned(),
    })
}

fn slow_reader(usage: &ClientUsage) -> Option<Advice> {
    let slow = usage.slow.as_ref()?;
    let behind = &slow.behind;
    let remaining = match behind.remaining {
        Some(remaining) => format!(
            "; what it needs is retained for {} more",
            duration(remaining)
        ),
        None => String::new(),
    };
    Some(Advice {
        kind: AdviceKind::SlowReader,
        evidence: format!(
            "{} of {}: the reader has been behind for {}, by {} events{remaining}; slow \
             answers of this client: {}",
            slow.operation.verb,
            objects(&slow.operation),
            duration(behind.waited),
            number(behind.events),
            number(slow.answers),
        ),
        fix: "read faster, select less, or ask for metadata only; a watch that is too far behind \
              gets 410 and must list again (--retention-age is how long events are retained)"
            .to_owned(),
    })
}

fn other_format(ten_minutes: &Counts) -> Option<Advice> {
    let forwarded = ten_minutes.get(Count::OtherFormat);
    let answered = ten_minutes.get(Count::Hits);
    (forwarded >= OTHER_FORMAT && forwarded > answered).then(|| Advice {
        kind: AdviceKind::OtherFormat,
        evidence: format!(
            "{} reads in ten minutes were forwarded because they accept only media types that no \
             cache has",
            number(forwarded),
        ),
        fix: "accept application/json or application/vnd.kubernetes.protobuf, too".to_owned(),
    })
}

fn denied_reads(usage: &ClientUsage, minute: &Counts) -> Option<Advice> {
    let denied = minute.get(Count::Forbidden);
    let rate = per_minute(usage, minute, Count::Forbidden);
    let worst = most(usage, Count::Forbidden)?;
    (denied >= LEAST_REFUSED && rate >= DENIED).then(|| Advice {
        kind: AdviceKind::DeniedReads,
        evidence: format!(
            "{} answers a minute are 403, mostly to {} {}",
            number(rate),
            worst.operation.verb,
            objects(&worst.operation),
        ),
        fix: "give the user the right, or do not ask again at once".to_owned(),
    })
}

fn wrong_credentials(usage: &ClientUsage, minute: &Counts) -> Option<Advice> {
    let refused = minute.get(Count::Unauthorized);
    let rate = per_minute(usage, minute, Count::Unauthorized);
    (refused >= LEAST_REFUSED && rate >= UNAUTHORIZED).then(|| Advice {
        kind: AdviceKind::WrongCredentials,
        evidence: format!("{} answers a minute are 401", number(rate)),
        fix: "renew the token or the certificate of the program, and wait after a 401 \
              (--max-failed-authentications-per-second limits each address)"
            .to_owned(),
    })
}

fn stalled_bodies(ten_minutes: &Counts) -> Option<Advice> {
    let stalls = ten_minutes.get(Count::Stalls);
    (stalls >= STALLS).then(|| Advice {
        kind: AdviceKind::StalledBodies,
        evidence: format!(
            "{} answers in ten minutes were broken off because they were read too slowly",
            number(stalls),
        ),
        fix: "read faster, or ask for pages (limit) or metadata only; --min-body-rate is the \
              slowest rate"
            .to_owned(),
    })
}
