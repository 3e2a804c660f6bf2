//! The last proof of all objects: which reads it serves after changes, other proofs and restores.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};

use super::model::object;
use crate::api::{EventType, ResourceVersion, Selection};
use crate::cache;
use crate::cache::{EpochCause, Reader, Snapshot, Writer};
use crate::informer::freshness::recent_proof::RecentProof;

/// What happens to a cache or its proofs, with the version that it is about.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// All objects are proven for this version.
    Whole(u64),
    /// All objects are proven for this version, by a proof that is stored at [`Step::Late`].
    Begin(u64),
    Late,
    /// The objects of one namespace are proven for this version.
    Part(u64),
    Change(u64),
    Bookmark(u64),
    /// The API server was restored, and the cache has listed it at this version.
    Restore(u64),
}

/// A cache that was listed at version 10, and its proofs.
struct World {
    writer: Writer,
    reader: Reader,
    proofs: RecentProof,
    /// When all proofs were requested.
    requested_at: Instant,
    late: Option<Snapshot>,
}

impl World {
    fn new() -> Self {
        let (writer, reader) = cache::cache(cache::Config::default());
        let mut world = Self {
            writer,
            reader,
            proofs: RecentProof::default(),
            requested_at: Instant::now(),
            late: None,
        };
        world.list(10);
        world
    }

    fn after(steps: &[Step]) -> Self {
        let mut world = Self::new();
        steps.iter().for_each(|step| world.take(*step));
        world
    }

    fn list(&mut self, version: u64) {
        let mut relist = self.writer.relist();
        relist.add(object("a/x", &("uid".to_owned(), version, "web")));
        self.writer.replace(relist, ResourceVersion(version));
    }

    fn newest(&self) -> Snapshot {
        self.reader.snapshot().expect("is ready")
    }

    fn proven(&self, version: u64, selection: Selection) -> Snapshot {
        let (newest, version) = (self.newest(), ResourceVersion(version));
        self.reader
            .proven_at(&newest, version, &Arc::new(selection))
    }

    fn whole(&self, version: u64) -> Snapshot {
        self.proven(version, Selection::default())
    }

    fn store(&self, proven: &Snapshot) {
        self.proofs.show(proven);
        self.proofs.remember(self.requested_at, proven);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Whole(version) => self.store(&self.whole(version)),
            Step::Begin(version) => self.late = Some(self.whole(version)),
            Step::Late => {
                let proven = self.late.take().expect("a proof has begun");
                self.store(&proven);
            }
            Step::Part(version) => {
                let selection = Selection {
                    namespace: Some("a".to_owned()),
                    ..Selection::default()
                };
                self.proofs.show(&self.proven(version, selection));
            }
            Step::Change(version) => {
                let changed = object("a/x", &("uid".to_owned(), version, "web"));
                let applied = self.writer.apply(EventType::Modified, changed, None);
                applied.expect("in order");
            }
            Step::Bookmark(version) => {
                let version = ResourceVersion(version);
                self.writer.bookmark(version).expect("in order");
            }
            Step::Restore(version) => {
                self.writer.new_epoch(EpochCause::WentBack);
                self.list(version);
            }
        }
    }

    /// Returns the version of what the proofs prove for `moment`.
    fn since(&self, moment: Instant) -> Option<u64> {
        let (proven, as_of) = self.proofs.since(moment, &self.reader)?;
        assert!(as_of >= moment);
        assert!(proven.is_whole());
        assert_eq!(proven.newest_change(), self.newest().newest_change());
        Some(proven.resource_version().0)
    }
}

#[tokio::test]
async fn a_proof_serves_later_reads_unless_clients_may_have_seen_a_newer_state() {
    use Step::{Begin, Bookmark, Change, Late, Part, Restore, Whole};
    for (steps, expected) in [
        (&[][..], None),
        (&[Whole(10)], Some(10)),
        (&[Whole(10), Change(11)], Some(11)),
        // The API server has listed the objects of the cache at a later version.
        (&[Whole(20)], Some(20)),
        (&[Whole(20), Bookmark(15)], Some(20)),
        (&[Whole(20), Bookmark(25)], Some(25)),
        (&[Whole(20), Change(15)], None),
        (&[Whole(20), Change(15), Change(20)], Some(20)),
        // The cache changes before the proof is stored.
        (&[Begin(20), Change(15), Late], None),
        (&[Begin(20), Change(15), Late, Change(20)], Some(20)),
        (&[Begin(10), Change(15), Late], Some(15)),
        // Another version than the cache's own would be a torn pair.
        (&[Begin(10), Change(15), Late, Part(20)], Some(15)),
        (&[Part(20)], None),
        (&[Whole(10), Part(20)], Some(10)),
        (&[Whole(10), Part(20), Bookmark(15)], Some(15)),
        // An object that was created at 15 and deleted at 18 must not appear after it was gone.
        (&[Whole(10), Part(20), Change(15)], None),
        (&[Whole(10), Part(20), Part(18), Change(19)], None),
        (&[Whole(10), Part(20), Change(20)], Some(20)),
        // Proofs of two states: the cache's later one is perhaps not newer than the first proof.
        (&[Whole(10), Part(20), Change(15), Part(25)], None),
        (&[Whole(10), Part(20), Change(15), Whole(15)], None),
        (
            &[Whole(10), Part(20), Change(15), Part(25), Bookmark(25)],
            Some(25),
        ),
        (
            &[Whole(10), Part(20), Change(15), Part(25), Whole(30)],
            Some(30),
        ),
        (&[Whole(10), Part(20), Change(30), Part(40)], Some(30)),
        // Versions of two histories are not compared.
        (&[Whole(20), Restore(5)], None),
        (&[Whole(20), Restore(5), Whole(5)], Some(5)),
        (&[Part(20), Restore(5), Whole(5), Change(6)], Some(6)),
        (&[Begin(20), Restore(5), Whole(5), Late], Some(5)),
    ] {
        let world = World::after(steps);
        assert_eq!(world.since(world.requested_at), expected, "{steps:?}");
    }
}

#[tokio::test]
async fn a_cache_behind_a_proof_is_noticed() {
    use Step::{Change, Part, Restore, Whole};
    for (steps, expected) in [
        (&[][..], false),
        (&[Part(20)], false),
        (&[Part(20), Change(15)], true),
        (&[Part(20), Change(20)], false),
        (&[Whole(20), Change(15)], true),
        (&[Part(20), Restore(5)], false),
    ] {
        let world = World::after(steps);
        let is_ahead = world.proofs.is_ahead_of(&world.newest());
        assert_eq!(is_ahead, expected, "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_proof_serves_moments_up_to_its_request() {
    let world = World::new();
    let moment = async || {
        sleep(Duration::from_millis(1)).await;
        Instant::now()
    };
    let (early, requested_at, late) = (moment().await, moment().await, moment().await);
    world.proofs.remember(requested_at, &world.whole(10));
    let served = |at: [Instant; 3]| at.map(|moment| world.since(moment));
    let moments = [early, requested_at, late];
    assert_eq!(served(moments), [Some(10), Some(10), None]);
    world.proofs.remember(late, &world.whole(10));
    assert_eq!(served(moments), [Some(10); 3]);
    // A higher version also has what the proof before covers, although it was requested earlier.
    world.proofs.remember(early, &world.whole(20));
    assert_eq!(served(moments), [Some(20); 3]);
    world.proofs.remember(moment().await, &world.whole(15));
    assert_eq!(served(moments), [Some(20); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_proof_is_recent_until_its_bound() {
    const BOUND: Duration = Duration::from_secs(5);
    let world = World::after(&[Step::Whole(10)]);
    let is_recent = || world.proofs.within(BOUND, &world.reader).is_some();
    advance(BOUND).await;
    assert!(is_recent());
    advance(Duration::from_millis(1)).await;
    assert!(!is_recent());
}
