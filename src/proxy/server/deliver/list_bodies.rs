//! ListBodies: the bodies of a list's items, read from the snapshot while the list is sent.

use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use kubefan_core::api::{ObjectKey, Selection};
use kubefan_core::cache::Snapshot;
use kubefan_core::codec::Encoder;
use kubefan_core::concurrency::CoopBudget;

use crate::ledger::{Account, Charge, GrowingCharge, MemoryKind};

/// Number of objects of a snapshot that are examined together. If none of them is an item of the
/// list, other tasks run before the next objects are examined.
const MAX_EXAMINED: usize = 4 << 10;
/// Largest number of complete objects whose bodies are collected before the list is sent.
const MAX_COLLECTED: usize = 64;
/// Bytes that are charged together for converted bodies.
const CHARGED_AT_ONCE: usize = 64 << 10;
/// Number of bodies that are fetched together, so that the snapshot is not searched for each.
const FETCHED: usize = 64;
/// Number of bodies that are fetched first. Many readers take no more than the first chunk.
const FETCHED_FIRST: usize = 4;

/// The bodies of a list's items. A clone returns the remaining ones.
///
/// Returns an empty body, which is not an item, if it examined many objects and found no item, or
/// if it has printed many rows, so that other tasks can run.
#[derive(Clone)]
pub(crate) enum ListBodies {
    /// The bodies of a list that is short or was converted, and their charge.
    Collected {
        bodies: vec::IntoIter<Bytes>,
        _charge: Option<Arc<Charge>>,
    },
    /// A position in a snapshot. A long list takes no more memory than a short one.
    Cursor(Box<Cursor>),
}

/// The memory for the bodies of a list that are collected before it is sent.
///
/// Bodies of complete objects belong to the cache, so those of a long list are fetched again while
/// the list is sent. Converted bodies would have to be made a second time, so they are collected if
/// the ledger permits that.
pub(crate) struct RoomForBodies {
    is_converted: bool,
    charge: GrowingCharge,
}

/// A position in a snapshot. The bodies of a list's items are fetched from this position on.
#[derive(Clone)]
pub(crate) struct Cursor {
    snapshot: Snapshot,
    selection: Arc<Selection>,
    encoder: Arc<Encoder>,
    /// The last key that was examined; before the first one, the key after which the list starts.
    after: Option<ObjectKey>,
    fetched: vec::IntoIter<Bytes>,
    batch: usize,
    /// True if other tasks must run before the next bodies are fetched, because the last bodies
    /// took much work.
    must_pause: bool,
}

impl ListBodies {
    /// Returns the bodies of the objects that `selection` selects in `snapshot`, with keys above
    /// `after`.
    pub(crate) fn from_snapshot(
        snapshot: &Snapshot,
        selection: &Arc<Selection>,
        encoder: &Arc<Encoder>,
        after: Option<&str>,
    ) -> Self {
        Self::Cursor(Box::new(Cursor {
            snapshot: snapshot.clone(),
            selection: Arc::clone(selection),
            encoder: Arc::clone(encoder),
            after: after.map(|after| ObjectKey::new(None, after)),
            fetched: Vec::new().into_iter(),
            batch: FETCHED_FIRST,
            must_pause: false,
        }))
    }
}

impl RoomForBodies {
    /// Creates the room for a list of the client with `account`. Converted bodies of a client
    /// without account are always collected.
    pub(super) fn new(is_converted: bool, account: Option<Arc<Account>>) -> Self {
        Self {
            is_converted,
            charge: GrowingCharge::new(MemoryKind::List, account),
        }
    }

    /// Returns true if `count` bodies of `bytes` in total can be collected.
    pub(crate) fn fits(&mut self, count: usize, bytes: usize) -> bool {
        if !self.is_converted {
            return count <= MAX_COLLECTED;
        }
        let bytes = bytes + count * size_of::<Bytes>();
        self.charge.fits(bytes.next_multiple_of(CHARGED_AT_ONCE))
    }

    /// Returns `bodies`, which fit into the room, together with their charge.
    pub(crate) fn holding(self, bodies: Vec<Bytes>) -> ListBodies {
        ListBodies::Collected {
            bodies: bodies.into_iter(),
            _charge: self.charge.into_charge().map(Arc::new),
        }
    }
}

impl Cursor {
    /// Fetches the next bodies. Returns false if no object is left.
    fn fetch(&mut self) -> bool {
        let after = self.after.as_ref().map(ObjectKey::as_str);
        let mut bodies = Vec::with_capacity(self.batch);
        let mut budget = CoopBudget::new();
        let mut last = None;
        let candidates = self.snapshot.candidates(&self.selection, after);
        for object in candidates.take(MAX_EXAMINED) {
            last = Some(object);
            if self.selection.matches(object) {
                let (body, work) = self.encoder.made_body(object);
                bodies.push(body);
                budget.charge(work.units(object));
            }
            if bodies.len() >= self.batch || budget.is_spent() {
                break;
            }
        }
        let Some(last) = last else {
            return false;
        };
        self.after = Some(last.key.clone());
        self.must_pause = budget.is_spent();
        self.fetched = bodies.into_iter();
        self.batch = FETCHED;
        true
    }
}

impl Iterator for Cursor {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(body) = self.fetched.next() {
            return Some(body);
        }
        if std::mem::take(&mut self.must_pause) {
            return Some(Bytes::new());
        }
        self.fetch()
            .then(|| self.fetched.next().unwrap_or_default())
    }
}

impl Iterator for ListBodies {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Collected { bodies, .. } => bodies.next(),
            Self::Cursor(cursor) => cursor.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::{
        LabelOperator, LabelRequirement, LabelSelector, Object, ObjectValues, ResourceVersion,
        WireFormat,
    };
    use kubefan_core::cache;
    use tokio::time::Instant;

    use super::*;
    use crate::ledger::{Ledger, Limits, Swept};

    const OBJECTS: usize = 3 * MAX_EXAMINED;

    /// Makes a snapshot. Its objects have the label `app=rare` if their number is in `rare`, and
    /// all have the indexed label `half` with the value 0 or 1.
    fn snapshot(rare: &[usize]) -> Snapshot {
        let (mut writer, reader) = cache::cache(cache::Config {
            indexed_labels: vec!["half".to_owned()],
            ..cache::Config::default()
        });
        let mut relist = writer.relist();
        for number in 0..OBJECTS {
            let app = if rare.contains(&number) { "rare" } else { "" };
            let values = ObjectValues {
                labels: vec![
                    ("app".into(), app.into()),
                    ("half".into(), (number % 2).to_string().into()),
                ],
                ..ObjectValues::default()
            };
            let namespace = format!("ns-{}", number % 3);
            let key = ObjectKey::new(Some(&namespace), &format!("{number:06}"));
            let body = format!("\"metadata\":{{\"name\":\"{number}\"}}}}");
            relist.add(Object::new(key, ResourceVersion(1), &values, body.into()));
        }
        writer.replace(relist, ResourceVersion(1));
        reader.snapshot().expect("the first list was applied")
    }

    fn with_label(namespace: Option<&str>, key: &str, value: &str) -> Selection {
        let requirement = LabelRequirement {
            key: key.to_owned(),
            operator: LabelOperator::In(vec![value.to_owned()]),
        };
        Selection {
            namespace: namespace.map(str::to_owned),
            labels: LabelSelector {
                requirements: vec![requirement],
            },
            ..Selection::default()
        }
    }

    #[test]
    fn converted_bodies_are_collected_while_the_ledger_permits() {
        const MIB: usize = 1 << 20;
        let ledger = Ledger::new(Limits::new(Some(80 << 20), Some(80 << 20), 0));
        let account = ledger.open_account();
        let room = |is_converted| RoomForBodies::new(is_converted, Some(account.clone()));
        let mut whole = room(false);
        assert!(whole.fits(MAX_COLLECTED, 64 * MIB));
        assert!(!whole.fits(MAX_COLLECTED + 1, 1));
        // An eighth of the memory is for collected bodies.
        let mut first = room(true);
        assert!(first.fits(1, MIB) && first.fits(1_000, 8 * MIB));
        let bodies = first.holding(vec![Bytes::from_static(b"x")]);
        let rest = bodies.clone();
        let mut second = room(true);
        assert!(second.fits(1, MIB) && !second.fits(2, 2 * MIB));
        drop(bodies);
        assert!(!second.fits(2, 2 * MIB));
        drop(rest);
        assert!(second.fits(2, 2 * MIB));
        // It is not the reason to close a connection.
        let mut was_short = true;
        assert_eq!(
            ledger.sweep(Instant::now(), &mut was_short),
            Swept::default()
        );
        drop((whole, second, account));
        assert_eq!(ledger.leased(), 0);
        assert!(RoomForBodies::new(true, None).fits(1_000, 100 * MIB));
    }

    #[test]
    fn a_cursor_returns_what_the_snapshot_lists_and_pauses_in_long_searches() {
        let last = OBJECTS - 1;
        let snapshot = snapshot(&[0, 5, last]);
        let encoder = Arc::new(Encoder::new(WireFormat::Json, "Thing", "v1"));
        let rows = [
            (Selection::default(), None, OBJECTS, false),
            (Selection::default(), Some("ns-2/"), OBJECTS / 3, false),
            (with_label(None, "half", "1"), None, OBJECTS / 2, false),
            (
                with_label(Some("ns-1"), "half", "0"),
                Some("ns-1/000100"),
                2_031,
                false,
            ),
            (with_label(None, "app", "rare"), None, 3, true),
            (with_label(None, "app", "rare"), Some("ns-2"), 2, false),
            (with_label(None, "app", "none"), None, 0, true),
        ];
        for (selection, after, count, has_pauses) in rows {
            let listed = snapshot.list(&selection, after);
            let expected: Vec<_> = listed
                .map(|object| encoder.body_of(&object).into_owned())
                .collect();
            assert_eq!(expected.len(), count, "{selection:?}");
            let selection = Arc::new(selection);
            let bodies = ListBodies::from_snapshot(&snapshot, &selection, &encoder, after);
            let mut rest = bodies.clone();
            let (pauses, found): (Vec<_>, Vec<_>) = bodies.partition(Bytes::is_empty);
            assert!(found == expected, "{selection:?}");
            assert_eq!(!pauses.is_empty(), has_pauses, "{selection:?}");
            // A clone goes on where the original was.
            let mut first: Vec<_> = rest.by_ref().take(10).collect();
            first.extend(rest.clone());
            first.retain(|body| !body.is_empty());
            assert!(first == expected, "{selection:?}");
        }
    }
}
