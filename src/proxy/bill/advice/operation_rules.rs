//! Rules that look at one operation of a client.

use std::time::Duration;

use super::text::objects;
use super::{Advice, AdviceKind, Context};
use crate::bill::table::{ClientUsage, Count, Counts, OperationUsage, SelectorClass};
use crate::text::{bytes, number};

/// LISTs of the most recent state per minute that are a loop.
const LIST_LOOP: u64 = 60;
/// The fewest LISTs that are a loop, however short the time.
const LEAST_LISTS: u64 = 30;
/// GETs of the most recent state per minute that are a loop: ten per second. Programs of one name,
/// such as agents on 300 nodes, are one client, and each may send a GET a minute.
const GET_LOOP: u64 = 600;
/// The fewest GETs that are a loop, however short the time: agents may start together.
const LEAST_GETS: u64 = 400;
/// Lists in ten minutes that are a loop, if watches follow them.
const RELIST_LOOP: u64 = 20;
/// The average bytes of a LIST that is huge.
const HUGE_LIST: u64 = 8 << 20;
/// The fewest huge LISTs in ten minutes that are worth advice.
const LEAST_HUGE_LISTS: u64 = 10;
/// The fewest reads for each open watch that are a loop: with a rollout, many programs of one name
/// list once each, and keep their watches open.
const READS_PER_WATCH: u64 = 5;
/// LISTs per minute with conditions without an index that are worth advice.
const UNINDEXED_LISTS: u64 = 60;

/// The rate of a young client is that of this time at least, so that its first requests are not
/// taken for many.
const YOUNGEST: Duration = Duration::from_secs(10);

/// Returns the advice about one operation.
pub(super) fn advise(
    usage: &ClientUsage,
    operation: &OperationUsage,
    context: Context<'_>,
) -> Vec<Advice> {
    let advice = match operation.operation.verb {
        "list" => {
            let relist = relist_loop(usage, operation);
            let polling = relist.or_else(|| list_loop(usage, operation, context));
            let costly = polling.or_else(|| huge_lists(usage, operation));
            [costly, unindexed(usage, operation)]
        }
        "get" => [get_loop(usage, operation, context), None],
        // Watches may begin with all objects, as lists do.
        "watch" => [relist_loop(usage, operation), None],
        _ => [None, None],
    };
    advice.into_iter().flatten().collect()
}

/// Returns how often a count rises per minute, from the last minute or the age of the row.
pub(super) fn per_minute(usage: &ClientUsage, minute: &Counts, count: Count) -> u64 {
    let seconds = usage.age.clamp(YOUNGEST, Duration::from_secs(60));
    let rate = minute.get(count) as f64 * 60.0 / seconds.as_secs_f64();
    rate.round() as u64
}

/// Returns the client's watches of the resource of `operation`.
fn watches<'a>(
    usage: &'a ClientUsage,
    operation: &'a OperationUsage,
) -> impl Iterator<Item = &'a OperationUsage> {
    usage.operations.iter().filter(move |other| {
        other.operation.verb == "watch" && other.operation.is_on_resource_of(&operation.operation)
    })
}

/// Returns true if `reads` are many more than the watches of the resource that are open. Returns
/// false if that is not known, because the row of a watch may have given way to another operation.
fn exceeds_watches(usage: &ClientUsage, operation: &OperationUsage, reads: u64) -> bool {
    if usage.has_other_operations && watches(usage, operation).next().is_none() {
        return false;
    }
    let open: u64 = watches(usage, operation).map(|watch| watch.open).sum();
    reads >= open.saturating_mul(READS_PER_WATCH)
}

fn list_loop(
    usage: &ClientUsage,
    operation: &OperationUsage,
    context: Context<'_>,
) -> Option<Advice> {
    let lists = operation.minute.get(Count::Unversioned);
    let rate = per_minute(usage, &operation.minute, Count::Unversioned);
    let is_loop =
        lists >= LEAST_LISTS && rate >= LIST_LOOP && exceeds_watches(usage, operation, lists);
    is_loop.then(|| Advice {
        kind: AdviceKind::ListLoop,
        evidence: format!(
            "lists {} {} times a minute without a version: {} objects a minute",
            objects(&operation.operation),
            number(rate),
            number(per_minute(usage, &operation.minute, Count::Objects)),
        ),
        fix: fix_of_loop(context, operation, ""),
    })
}

fn get_loop(
    usage: &ClientUsage,
    operation: &OperationUsage,
    context: Context<'_>,
) -> Option<Advice> {
    let gets = operation.minute.get(Count::Unversioned);
    let rate = per_minute(usage, &operation.minute, Count::Unversioned);
    let name = operation.operation.group_resource();
    // For leader election, each candidate gets its Lease every few seconds.
    let is_polled = !name.is_empty() && name != "leases.coordination.k8s.io";
    let is_loop = is_polled
        && gets >= LEAST_GETS
        && rate >= GET_LOOP
        && exceeds_watches(usage, operation, gets);
    is_loop.then(|| Advice {
        kind: AdviceKind::GetLoop,
        evidence: format!(
            "gets {} {} times a minute without a version",
            objects(&operation.operation),
            number(rate),
        ),
        // A GET starts no cache.
        fix: fix_of_loop(context, operation, &format!(" and --resource {name}")),
    })
}

/// Returns true if the resource of `operation` has sessions.
fn has_sessions(context: Context<'_>, operation: &OperationUsage) -> bool {
    let name = &operation.operation;
    let mut resources = context.session_resources.iter();
    resources.any(|gvr| gvr.group == name.group && gvr.resource == name.resource)
}

/// Returns what to do about a loop of reads. Sessions are another way if there are none yet;
/// `more_flags` are those that they need, too.
fn fix_of_loop(context: Context<'_>, operation: &OperationUsage, more_flags: &str) -> String {
    match has_sessions(context, operation) {
        true => "use a watch, or read with resourceVersion=0".to_owned(),
        false => format!("use a watch, or --freshness session{more_flags}"),
    }
}

fn relist_loop(usage: &ClientUsage, operation: &OperationUsage) -> Option<Advice> {
    let lists = operation.ten_minutes.get(Count::Lists);
    // `kubectl wait` lists all objects of a selector, or one, and watches single ones.
    let is_of_one = |of: &OperationUsage| of.operation.selector == SelectorClass::Name;
    let sum = |count| -> u64 {
        let of_many = watches(usage, operation).filter(|watch| !is_of_one(watch));
        of_many.map(|watch| watch.ten_minutes.get(count)).sum()
    };
    let (opened, gone) = (sum(Count::WatchesOpened), sum(Count::Gone));
    let is_loop = !is_of_one(operation)
        && lists >= RELIST_LOOP
        && opened >= RELIST_LOOP / 2
        && opened <= lists.saturating_mul(2)
        && exceeds_watches(usage, operation, lists);
    is_loop.then(|| Advice {
        kind: AdviceKind::RelistLoop,
        evidence: format!(
            "lists {} and then watches again and again: {} lists, {} watches and {} expired ones \
             in ten minutes",
            objects(&operation.operation),
            number(lists),
            number(opened),
            number(gone),
        ),
        fix: "resume the watch from its last resourceVersion, accept bookmarks \
              (allowWatchBookmarks=true), and list again only after a 410"
            .to_owned(),
    })
}

fn huge_lists(usage: &ClientUsage, operation: &OperationUsage) -> Option<Advice> {
    let lists = operation.ten_minutes.get(Count::Requests);
    let average = operation.ten_minutes.get(Count::Bytes) / lists.max(1);
    let is_huge = lists >= LEAST_HUGE_LISTS
        && average >= HUGE_LIST
        && exceeds_watches(usage, operation, lists);
    is_huge.then(|| Advice {
        kind: AdviceKind::HugeLists,
        evidence: format!(
            "{} lists of {} in ten minutes, {} each",
            number(lists),
            objects(&operation.operation),
            bytes(average),
        ),
        fix: "ask for pages (limit), for metadata only (PartialObjectMetadataList), or select less"
            .to_owned(),
    })
}

fn unindexed(usage: &ClientUsage, operation: &OperationUsage) -> Option<Advice> {
    if operation.operation.selector != SelectorClass::Unindexed {
        return None;
    }
    let rate = per_minute(usage, &operation.minute, Count::Requests);
    let requests = operation.minute.get(Count::Requests);
    (requests >= LEAST_LISTS && rate >= UNINDEXED_LISTS).then(|| Advice {
        kind: AdviceKind::UnindexedSelector,
        evidence: format!(
            "{} lists of {} a minute select by conditions that no index finds: each list examines \
             all objects",
            number(rate),
            operation.operation.group_resource(),
        ),
        fix: "add a namespace, or a condition key=value on a label of --index-label, to the \
              selector"
            .to_owned(),
    })
}
