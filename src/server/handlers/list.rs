//! LIST of a collection.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::Instant;

use crate::api::ContinueToken;
use crate::api::ListOptions;
use crate::api::Selection;
use crate::cache::Snapshot;
use crate::codec::Encoder;
use crate::codec::ListParts;
use crate::informer::Proof;
use crate::server::collection::Collection;
use crate::server::gzip;
use crate::server::renderings::ListKey;
use crate::server::router;
use crate::server::router::ListPlan;
use crate::server::router::Page;
use crate::server::router::Reason;

use super::Answer;
use super::Miss;
use super::Need;
use super::ReadRequest;

/// How long a list is prepared before others who use the thread get their turn.
const TURN: Duration = Duration::from_micros(500);
/// Objects between two looks at the clock.
const CLOCK_OBJECTS: usize = 32;

/// A LIST whose parameters are in order.
pub(crate) struct Checked {
    plan: ListPlan,
    selection: Selection,
}

impl Checked {
    /// What is selected.
    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// What the cache must have to answer it.
    pub(crate) fn need(&self) -> Need {
        match &self.plan {
            ListPlan::MostRecent(_) => Need::Consistent,
            ListPlan::Forward(_) | ListPlan::At(..) => Need::Past,
            ListPlan::NotOlderThan(needed, _) => Need::NotOlderThan(*needed),
        }
    }
}

/// Checks the parameters, in the API server's order.
///
/// # Errors
///
/// [`Miss::Reject`] for a fault in them.
pub(crate) fn check(request: &ReadRequest<'_>) -> Result<Checked, Miss> {
    let options = ListOptions::parse(request.query)?;
    options.check_list()?;
    let namespace = request.namespace()?;
    let selection = super::selection(&options, namespace, request)?;
    let plan = request
        .authority
        .plan_list(options.validate_list()?, namespace);
    Ok(Checked { plan, selection })
}

/// Answers from a snapshot of `collection`; the most recent state from `proof` only. A long list is
/// prepared in turns with others who use the thread. Cancel safe.
///
/// # Errors
///
/// [`Miss`] where no snapshot can answer.
pub(crate) async fn list(
    request: &ReadRequest<'_>,
    checked: &Checked,
    collection: &dyn Collection,
    proof: Option<&Proof>,
) -> Answer {
    let reader = collection.reader();
    let (snapshot, page) = match &checked.plan {
        ListPlan::Forward(reason) => return Err(Miss::Forward(*reason)),
        ListPlan::NotOlderThan(needed, page) => {
            let proven = proof.map(|proof| proof.snapshot.clone());
            let newest = || reader.snapshot();
            let snapshot = proven.or_else(newest).ok_or(Reason::NotCached)?;
            router::not_older_than(*needed, snapshot.resource_version())?;
            (snapshot, page)
        }
        ListPlan::At(at, page) => {
            let snapshot = reader.snapshot_at(*at).ok_or(Reason::PastState)?;
            (snapshot, page)
        }
        ListPlan::MostRecent(page) => {
            let proof = proof.ok_or(Reason::Unproven)?;
            (proof.snapshot.clone(), page)
        }
    };
    let pin = || {
        // The following pages must show this very state. Where it is proven of a part only, it is
        // not for everybody who names its version; then the API server has them.
        if proof.is_none_or(|proof| proof.is_whole) {
            reader.pin(&snapshot);
        }
    };
    let shared = request.renderings.map(|renderings| {
        let key = key(request, collection, &snapshot, &checked.selection, page);
        (renderings, key)
    });
    if let Some((renderings, key)) = &shared
        && let Some(found) = renderings.get(key)
    {
        if found.has_more {
            pin();
        }
        return Ok(gzip::announced(request.response(found.body)));
    }
    let (parts, has_more) = {
        let encoder = request.encoder(collection);
        parts(&encoder, &snapshot, &checked.selection, page).await
    };
    if has_more {
        pin();
    }
    let length = parts.length();
    let chunks = request.chunks(parts, length);
    match shared {
        Some((renderings, key)) if chunks.is_long() => {
            let body = renderings.render(key, chunks, has_more);
            Ok(gzip::announced(request.response(body)))
        }
        _ => Ok(request.answer(chunks)),
    }
}

fn key(
    request: &ReadRequest<'_>,
    collection: &dyn Collection,
    snapshot: &Snapshot,
    selection: &Selection,
    page: &Page,
) -> ListKey {
    ListKey {
        encoder: collection.encoder(),
        epoch: snapshot.epoch(),
        resource_version: snapshot.resource_version(),
        objects: snapshot.len(),
        representation: request.representation,
        selection: selection.clone(),
        after: page.after.clone(),
        limit: page.limit,
    }
}

/// The page's text, and whether any key of the scope follows its last one.
async fn parts(
    encoder: &Encoder,
    snapshot: &Snapshot,
    selection: &Selection,
    page: &Page,
) -> (ListParts, bool) {
    let mut turn = Turn::new();
    let mut items = encoder.list_items();
    let mut last = None;
    let limit = page.limit.unwrap_or(usize::MAX);
    let mut candidates = snapshot.candidates(selection, page.after.as_deref());
    while items.len() < limit
        && let Some(item) = candidates.next()
    {
        if selection.matches(item) {
            items.push(item);
            last = Some(item);
        }
        turn.pause().await;
    }
    let scope = scope_of(selection);
    let following = last.filter(|last| {
        let follows = || {
            let mut following = snapshot.candidates(&scope, Some(last.key.as_str()));
            following.next().is_some()
        };
        // A list of one name has at most one item and no next page.
        items.len() == limit && selection.name().is_none() && follows()
    });
    let continued = following.as_ref().map(|last| {
        let namespace = selection.namespace.as_deref();
        ContinueToken::after(&last.key, namespace, snapshot.resource_version()).encode()
    });
    let remaining = match &following {
        Some(last) if selection.is_unfiltered() => {
            let mut count = 0;
            for _ in snapshot.candidates(&scope, Some(last.key.as_str())) {
                count += 1;
                turn.pause().await;
            }
            Some(count)
        }
        _ => None,
    };
    let parts = items.finish(snapshot.resource_version(), continued.as_deref(), remaining);
    (parts, continued.is_some())
}

/// The time until others who use the thread get theirs.
struct Turn {
    objects: usize,
    began: Instant,
}

impl Turn {
    fn new() -> Self {
        Self {
            objects: 0,
            began: Instant::now(),
        }
    }

    /// To be called after each object.
    async fn pause(&mut self) {
        self.objects += 1;
        // The clock is dearer than most objects.
        if self.objects.is_multiple_of(CLOCK_OBJECTS) && self.began.elapsed() >= TURN {
            yield_now().await;
            self.began = Instant::now();
        }
    }
}

fn scope_of(selection: &Selection) -> Selection {
    Selection {
        namespace: selection.namespace.clone(),
        ..Selection::default()
    }
}
