//! Rules that the freshness model's tests switch off, to show that it needs each of them.
//!
//! Outside of tests every question is answered `false` at compile time.

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    /// A verification list is compared key by key: what it lacks is not looked for.
    KeyByKey,
    /// Versions of one history prove states of another.
    AcrossHistories,
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn is_active(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}

#[cfg(not(test))]
pub(super) const fn is_active(_: Mutation) -> bool {
    false
}

/// Runs `body` with `mutation` on, on this thread only.
#[cfg(test)]
pub(super) fn with<T>(mutation: Mutation, body: impl FnOnce() -> T) -> T {
    ACTIVE.set(Some(mutation));
    let result = body();
    ACTIVE.set(None);
    result
}
