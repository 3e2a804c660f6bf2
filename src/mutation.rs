//! Rules that the models' tests switch off, to show that a model needs each of them.
//!
//! Outside of tests every question is answered `false` at compile time.

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Starts strictly inside a hole are served.
    HoleServed,
    /// A start at a hole's lower end is given no block.
    BlockNotRepeated,
    /// The block's deletions carry the list's resource version, behind the changes.
    BlockAtList,
    /// That an object left a selection comes with its change, and not in the block.
    DepartureWithChange,
    /// A verdict looks at the new object only.
    NewObjectOnly,
    /// An open stream that waits for a future start doesn't notice a hole around it.
    FutureStartUnchecked,
    /// Losing a part of a hole moves the log's start as any other event does.
    HoleEvictedAsEvents,
    /// The index finds no group by the object before a change.
    OldObjectNotIndexed,
    /// A stream joins its group before it has read the log up to the tip: as if a commit had come in
    /// between.
    JoinedBeforeTip,
    /// A group's queue is taken to reach back to before the group was made.
    GroupStartIgnored,
    /// What is evicted from a group's queue is not counted, so that nobody falls off.
    EvictionUncounted,
    /// What is evicted from the log ends the streams of all groups.
    EvictionExpiresAll,
    /// The end of an epoch leaves the groups' queues as they are.
    QueueKeptAtEpoch,
    /// A verification list is compared key by key: what it lacks is not looked for.
    MissingKeysIgnored,
    /// Versions of one history prove states of another.
    AcrossHistories,
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn is_active(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}

#[cfg(not(test))]
pub(crate) const fn is_active(_: Mutation) -> bool {
    false
}

/// Runs `body` with `mutation` on, on this thread only.
#[cfg(test)]
pub(crate) fn with<T>(mutation: Mutation, body: impl FnOnce() -> T) -> T {
    ACTIVE.set(Some(mutation));
    let result = body();
    ACTIVE.set(None);
    result
}
