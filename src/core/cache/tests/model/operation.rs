//! The random operations of the model.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy};
use proptest::prop_oneof;
use proptest::sample::select;

pub(super) const KEYS: [&str; 6] = ["a/x", "a/y", "a/z", "a-b/x", "b/x", "b/z"];
pub(super) const APPS: [&str; 3] = ["web", "db", "job"];
pub(super) const CLIENTS: usize = 5;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Write {
        key: usize,
        app: usize,
    },
    Delete {
        key: usize,
    },
    Recreate {
        key: usize,
        app: usize,
    },
    /// Deletes all objects of a namespace, one per revision.
    Purge {
        namespace: &'static str,
    },
    /// An object of another resource changes, which only increases the revision.
    Tick,
    /// Changes are applied, without a wake.
    Feed {
        events: usize,
    },
    /// The streams are woken for the changes that were applied since the last wake.
    Wake,
    /// Applies changes like `Feed`, but loses a deletion if the next change recreates the object.
    FeedLossy {
        events: usize,
    },
    /// The upstream watch sends an object again that is stored already.
    Repeat {
        key: usize,
    },
    UpstreamBookmark,
    /// From now on the writer is interrupted after each change, when the last `events` events are
    /// in the log, but not in the groups' queues.
    HoldBack {
        events: usize,
    },
    /// The upstream watch is lost, and a list that is `behind` revisions old is applied.
    Relist {
        behind: u64,
        as_watch_list: bool,
    },
    Restore {
        revisions: u64,
    },
    ForgetHistory,
    Pin,
    SnapshotAt {
        behind: u64,
    },
    /// Time passes.
    Pass {
        seconds: u64,
    },
    /// A reader keeps the newest snapshot.
    Keep,
    /// A reader applies the changes in the log to a kept snapshot, up to a version `behind` the cache's.
    Replay {
        kept: usize,
        behind: u64,
    },
    /// A reader begins to follow the log.
    FollowLog,
    /// The reader takes the next events of the log.
    ReadLog {
        events: usize,
    },
    Client {
        client: usize,
        action: ClientOp,
    },
}

#[derive(Clone, Debug)]
pub(super) enum ClientOp {
    ListAndWatch,
    /// The client opens a watch with the state that the API server had `behind` revisions ago.
    Arrive {
        behind: u64,
    },
    /// The client watches from the cache's snapshot, proven for a version `later` revisions later.
    WatchProven {
        later: u64,
    },
    Poll {
        items: usize,
    },
    Cut,
    Resume,
    /// The client takes some items, and then resumes at the API server from its last version.
    ResumeElsewhere {
        items: usize,
    },
    TakeBookmark,
}

pub(super) fn operations() -> impl Strategy<Value = Vec<Op>> {
    let (key, app) = (0..KEYS.len(), 0..APPS.len());
    let client_op = prop_oneof![
        2 => Just(ClientOp::ListAndWatch),
        3 => (0..8u64).prop_map(|behind| ClientOp::Arrive { behind }),
        1 => (0..6u64).prop_map(|later| ClientOp::WatchProven { later }),
        5 => (1..5usize).prop_map(|items| ClientOp::Poll { items }),
        2 => Just(ClientOp::Poll { items: 50 }),
        3 => Just(ClientOp::Cut),
        4 => Just(ClientOp::Resume),
        3 => (0..4usize).prop_map(|items| ClientOp::ResumeElsewhere { items }),
        2 => Just(ClientOp::TakeBookmark),
    ];
    let op = prop_oneof![
        5 => (key.clone(), app.clone()).prop_map(|(key, app)| Op::Write { key, app }),
        2 => key.clone().prop_map(|key| Op::Delete { key }),
        2 => (key, app).prop_map(|(key, app)| Op::Recreate { key, app }),
        1 => select(vec!["a", "b"]).prop_map(|namespace| Op::Purge { namespace }),
        1 => Just(Op::Tick),
        3 => (1..6usize).prop_map(|events| Op::Feed { events }),
        2 => Just(Op::Wake),
        1 => (1..6usize).prop_map(|events| Op::FeedLossy { events }),
        1 => (0..KEYS.len()).prop_map(|key| Op::Repeat { key }),
        1 => Just(Op::UpstreamBookmark),
        1 => select(vec![0, 0, 1, 3]).prop_map(|events| Op::HoldBack { events }),
        3 => (0..4u64, select(vec![false, true]))
            .prop_map(|(behind, as_watch_list)| Op::Relist { behind, as_watch_list }),
        1 => (1..12u64).prop_map(|revisions| Op::Restore { revisions }),
        1 => Just(Op::ForgetHistory),
        1 => Just(Op::Pin),
        1 => (0..8u64).prop_map(|behind| Op::SnapshotAt { behind }),
        1 => select(vec![1, 20, 40, 80]).prop_map(|seconds| Op::Pass { seconds }),
        1 => Just(Op::Keep),
        1 => (0..4usize, 0..4u64).prop_map(|(kept, behind)| Op::Replay { kept, behind }),
        1 => Just(Op::FollowLog),
        1 => select(vec![1, 4, 1000]).prop_map(|events| Op::ReadLog { events }),
        18 => (0..CLIENTS, client_op).prop_map(|(client, action)| Op::Client { client, action }),
    ];
    vec(op, 1..130)
}
