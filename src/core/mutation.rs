//! Mutations: deliberate bugs that tests switch on, to show that the random models notice them.
//!
//! In builds without tests, `is_active` is a constant `false`.

/// A deliberate bug: each variant switches off one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Watches that start strictly inside a hole are served. They should expire.
    HoleServed,
    /// A watch that starts at the lower end of a hole does not get the block. It should.
    BlockNotRepeated,
    /// The block comes after the changes and has the list's resource version. It should come first
    /// and have the version of the cache when the upstream watch was lost.
    BlockAtList,
    /// After a relist, a watch gets the DELETED event for an object that no longer matches at the
    /// version of the object's change. The event should be in the block.
    DepartureWithChange,
    /// A verdict ignores the object before the change.
    NewObjectOnly,
    /// A stream continues although a relist put a hole around the future version that it waits for.
    FutureStartUnchecked,
    /// A relist that finds no difference opens no hole. It should open one: an object that was
    /// created and deleted in between is in neither state.
    UnchangedListWithoutHole,
    /// When the log drops a hole's first event, the log still serves starts inside the hole.
    HoleEvictedAsEvents,
    /// The index does not find groups by the object before a change.
    OldObjectNotIndexed,
    /// A stream may read a group's queue from a log position that the queue does not reach back to.
    GroupStartIgnored,
    /// A stream does not read the tip again after it has registered its waker.
    TipNotReadAgain,
    /// A stream gets events from its group's queue that it has already read from the log.
    QueuedAgain,
    /// A bookmark may cover events that are in the log, but not in the groups' queues yet.
    UnqueuedBookmarked,
    /// Evictions do not change a queue's event numbers, so a stream that lost events continues.
    EvictionUncounted,
    /// An eviction from the log expires the streams of all groups, also of unaffected ones.
    EvictionExpiresAll,
    /// The end of an epoch does not end the groups' queues, so their streams stay open.
    QueueKeptAtEpoch,
    /// Reads and resumed watches get the open version, although more changes of it may come.
    OpenVersionShown,
    /// Changes of the open version that a resumed upstream watch repeats are applied again.
    OpenVersionRepeated,
    /// A bridge ends before it has reached a version that the log serves.
    BridgeLeftEarly,
    /// A watch gets all events of its bridge, also those up to the version that its client has.
    BridgeRepeatsKnown,
    /// The comparison with a verification list ignores versions, and objects not in the list.
    MissingKeysIgnored,
    /// The time of a list is the end of its answer, so that the list also proves requests that were
    /// made after it was sent. It should be a moment before the list was sent.
    ListDatedAtEnd,
    /// A snapshot that is proven only for a selection at a later version is pinned for
    /// reads of all objects.
    PartPinnedAsWhole,
    /// A proof may compare resource versions of two different histories.
    AcrossHistories,
    /// A list of the cache that was in flight when a proof began is proven by the proof's calls.
    /// The proof should start again.
    ListInFlightProven,
    /// Stored objects stay slices of frames that the log has dropped.
    FramesKept,
    /// A cursor on the log continues after events that the log has dropped. It should expire.
    CursorSkipsEvicted,
    /// The log drops events of any age.
    AgeIgnored,
}

#[cfg(any(test, feature = "test-support"))]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// True if `mutation` is on, on this thread.
#[cfg(any(test, feature = "test-support"))]
pub(crate) fn is_active(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}

#[cfg(not(any(test, feature = "test-support")))]
pub(crate) const fn is_active(_: Mutation) -> bool {
    false
}

/// Runs `body` with `mutation` on, on this thread only.
#[cfg(any(test, feature = "test-support"))]
pub fn with<T>(mutation: Mutation, body: impl FnOnce() -> T) -> T {
    ACTIVE.set(Some(mutation));
    let result = body();
    ACTIVE.set(None);
    result
}
