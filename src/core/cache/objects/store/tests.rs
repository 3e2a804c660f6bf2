//! Tests that a list has the same objects with and without an index, and when indexes are used.

use std::sync::{Arc, LazyLock};

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, prop_assert};
use proptest::{prop_assert_eq, prop_oneof, proptest};

use crate::api::{Field, Object, Selection};
use crate::cache::objects::Store;
use crate::cache::objects::key_range::KeyRange;
use crate::cache::tests::support::{
    config, in_namespace, key, object, object_with, with_field, with_label,
};

impl Store {
    fn uses_index(&self, selection: &Selection) -> bool {
        let range = KeyRange::new(selection.namespace.as_deref(), None);
        self.narrowest(selection, &range).is_some()
    }
}

const NAMES: [&str; 12] = [
    "a/x", "a/x-y", "a/x.y", "a/x0", "a-b/x", "a.b/x", "a0/x", "b/a", "b/b", "n", "n-1", "z",
];

fn selection() -> impl Strategy<Value = Selection> {
    let namespace = prop_oneof![
        2 => Just(None),
        1 => Just(Some("a".to_owned())),
        1 => Just(Some("b".to_owned())),
        1 => Just(Some("gone".to_owned())),
    ];
    let terms = prop_oneof![
        Just(Selection::default()),
        Just(with_label("web")),
        Just(with_label("none")),
        Just(with_field(Field::Value(0), true, "db")),
        Just(with_field(Field::Value(0), true, "")),
        Just(with_field(Field::Value(0), false, "web")),
        Just(with_field(Field::Name, true, "x")),
        Just(with_field(Field::Name, true, "n")),
        Just(with_field(Field::Namespace, true, "a")),
        Just(with_field(Field::Namespace, true, "")),
        Just(with_field(Field::Namespace, false, "a")),
    ];
    (namespace, terms).prop_map(|(namespace, terms)| Selection { namespace, ..terms })
}

fn naive(store: &Store, selection: &Selection, after: Option<&str>) -> Vec<Arc<Object>> {
    let is_after = |object: &&Arc<Object>| after.is_none_or(|after| object.key.as_str() > after);
    let selected = |object: &&Arc<Object>| selection.matches(object);
    store
        .objects()
        .filter(is_after)
        .filter(selected)
        .cloned()
        .collect()
}

/// Puts `object` into `store`, in place if no index has to change.
fn write(store: &mut Store, object: Object) {
    let stored = store.get(object.key.as_str());
    let is_alike = stored.is_some_and(|stored| store.indexes_alike(stored, &object));
    let before = store.clone();
    let objects: Vec<_> = before.objects().cloned().collect();
    if is_alike {
        drop(store.replace(Arc::new(object)).expect("is stored"))
    } else {
        drop(store.insert(Arc::new(object)))
    }
    assert!(before.objects().eq(&objects), "a snapshot has changed");
}

proptest! {
    #[test]
    fn every_index_gives_the_result_of_a_scan(
        writes in vec((0..NAMES.len(), prop_oneof!["web", "db", "x", ""], 0..5u8), 0..60),
        selection in selection(),
        after in prop_oneof![Just(None), (0..NAMES.len()).prop_map(|name| Some(NAMES[name]))],
        namespaced in proptest::bool::ANY,
    ) {
        let mut store = Store::new(&config());
        for (version, (name, app, kind)) in writes.into_iter().enumerate() {
            let name = NAMES[name];
            if name.contains('/') != namespaced {
                continue;
            }
            let written = object(name, "u", version as u64, &app);
            match kind {
                0 => drop(store.remove(&key(name))),
                1 => {
                    let written = object_with(name, "u", version as u64, Vec::new(), &app);
                    store.insert(Arc::new(written));
                }
                2 => drop(store.insert(Arc::new(written))),
                _ => write(&mut store, written),
            }
        }
        let bytes: usize = store.objects().map(|object| object.size()).sum();
        prop_assert_eq!(store.bytes(), bytes);
        let listed: Vec<_> = store.select(&selection, after).collect();
        prop_assert!(listed == naive(&store, &selection, after));
        prop_assert!(listed.is_sorted_by(|a, b| a.key < b.key));
    }
}

proptest! {
    /// Values are on up to 40 objects, so their counts cross `MIN_COUNTED` in both directions.
    #[test]
    fn an_index_finds_all_objects_for_common_and_rare_values(
        writes in vec((0..40_usize, prop_oneof!["web", "db", "x"], 0..5u8), 0..400),
    ) {
        let mut store = Store::new(&config());
        for (name, app, kind) in writes {
            let name = format!("a/p{name:02}");
            match kind {
                0 => drop(store.remove(&key(&name))),
                _ => drop(store.insert(Arc::new(object(&name, "u", 1, &app)))),
            }
        }
        for app in ["web", "db", "x"] {
            let selection = with_field(Field::Value(0), true, app);
            let listed: Vec<_> = store.select(&selection, None).collect();
            prop_assert!(listed == naive(&store, &selection, None));
            prop_assert_eq!(store.uses_index(&selection), listed.len() < store.len());
        }
    }
}

#[test]
fn a_narrow_index_is_used_and_a_wide_one_is_not() {
    let mut store = Store::new(&config());
    for index in 0..1000 {
        let app = if index % 100 == 7 { "rare" } else { "common" };
        let text = format!("{}/p{index:04}", ["a", "b"][index % 2]);
        store.insert(Arc::new(object(&text, "u", 1, app)));
    }
    let label = |app| with_label(app);
    assert!(store.uses_index(&label("rare")));
    assert!(store.uses_index(&with_field(Field::Value(0), true, "rare")));
    assert!(!store.uses_index(&label("common")));
    assert!(!store.uses_index(&in_namespace("a")));
    let rare = label("rare");
    let in_b = Selection {
        namespace: Some("b".to_owned()),
        ..rare.clone()
    };
    assert_eq!(store.select(&rare, None).count(), 10);
    assert_eq!(store.select(&in_b, None).count(), 10);
    assert_eq!(store.select(&in_b, Some("b/p0507")).count(), 4);
}

#[test]
fn a_value_that_becomes_common_and_then_rare_is_found() {
    let mut store = Store::new(&config());
    let text = |number: usize| format!("a/p{number:05}");
    let put = |store: &mut Store, number: usize, app: &str| {
        store.insert(Arc::new(object(&text(number), "u", 1, app)));
    };
    let found = |store: &Store, app: &str| {
        let listed = store.select(&with_label(app), None).count();
        let is_web = with_field(Field::Value(0), true, app);
        assert_eq!(store.select(&is_web, None).count(), listed);
        assert_eq!(naive(store, &is_web, None).len(), listed);
        listed
    };
    (0..300).for_each(|number| put(&mut store, number, "web"));
    assert_eq!(found(&store, "web"), 300);
    let snapshot = store.clone();
    (300..20_000).for_each(|number| put(&mut store, number, &format!("x{}", number % 400)));
    assert!(!store.uses_index(&with_label("web")), "still common");
    assert!(store.uses_index(&with_label("x7")));
    assert_eq!((found(&store, "web"), found(&store, "x7")), (300, 49));
    store.remove(&key(&text(5)));
    assert_eq!(found(&store, "web"), 299);
    (6..300).for_each(|number| put(&mut store, number, "db"));
    assert!(store.uses_index(&with_label("web")), "no longer common");
    assert_eq!((found(&store, "web"), found(&store, "db")), (5, 294));
    (0..5).for_each(|number| drop(store.remove(&key(&text(number)))));
    assert_eq!(found(&store, "web"), 0);
    assert_eq!(found(&snapshot, "web"), 300);
}

/// Settles the indexes of `store` in steps of up to `max` objects, and returns their number.
fn settle(store: &mut Store, max: usize) -> usize {
    let mut scan = None;
    let mut steps = 0;
    while store.settle_indexes(&mut scan, max) {
        steps += 1;
    }
    steps
}

proptest! {
    /// Values are on up to 2,000 objects, so they become common and rare.
    #[test]
    fn deferred_indexes_find_the_same_objects_once_they_are_settled(
        writes in vec((0..1900_usize, 1..600_usize, prop_oneof!["web", "db", "x"], 0..4u8), 0..12),
        max in prop_oneof![Just(1_usize), Just(7), Just(10_000)],
    ) {
        // Making it takes longer than most cases.
        static FULL: LazyLock<Store> = LazyLock::new(|| {
            let mut store = Store::new(&config());
            for number in 0..2_000 {
                let name = format!("a/p{number:04}");
                store.insert(Arc::new(object(&name, "u", 1, &format!("v{}", number % 300))));
            }
            store
        });
        let mut stores = [FULL.clone(), FULL.clone()];
        stores[1].defer_indexes();
        for (first, count, app, kind) in writes {
            for number in first..first + count {
                let name = format!("a/p{number:04}");
                for store in &mut stores {
                    match kind {
                        0 => drop(store.remove(&key(&name))),
                        _ => drop(store.insert(Arc::new(object(&name, "u", 2, &app)))),
                    }
                }
            }
        }
        settle(&mut stores[1], max);
        // A settled store counts on: further changes are not deferred.
        for store in &mut stores {
            store.insert(Arc::new(object("a/z", "u", 3, "db")));
        }
        for app in ["web", "db", "x", "v7"] {
            let selection = with_field(Field::Value(0), true, app);
            let [at_once, deferred] = [0, 1].map(|store| {
                let listed: Vec<_> = stores[store].select(&selection, None).collect();
                assert!(listed == naive(&stores[store], &selection, None));
                listed.len()
            });
            prop_assert_eq!(at_once, deferred);
        }
    }
}

#[test]
fn deferred_work_on_indexes_is_done_in_steps() {
    let mut store = Store::new(&config());
    let put = |store: &mut Store, app: &str| {
        for number in 0..3_000 {
            let name = format!("a/p{number:04}");
            let app = if number % 300 == 0 { "rare" } else { app };
            store.insert(Arc::new(object(&name, "u", 1, app)));
        }
    };
    put(&mut store, "web");
    store.defer_indexes();
    put(&mut store, "db");
    // For both the label and the field, 375 entries of `db` go, and 3,000 objects are searched.
    let steps = settle(&mut store, 100);
    assert!((60..90).contains(&steps), "{steps} steps");
    for (app, is_indexed) in [("rare", true), ("web", true), ("db", false)] {
        assert_eq!(store.uses_index(&with_label(app)), is_indexed, "{app}");
    }
    assert_eq!(store.select(&with_label("rare"), None).count(), 10);
    assert_eq!(settle(&mut store, 1), 0);
}

#[test]
fn bytes_are_released() {
    let mut store = Store::new(&config());
    assert_eq!((store.len(), store.bytes()), (0, 0));
    store.insert(Arc::new(object("a/x", "u", 1, "web")));
    let one = store.bytes();
    assert!(one > 100);
    store.insert(Arc::new(object("a/x", "u", 2, "web")));
    assert_eq!((store.len(), store.bytes()), (1, one));
    let clone = store.clone();
    store.insert(Arc::new(object("a/y", "u", 3, "web")));
    assert_eq!(store.bytes(), 2 * one);
    store.remove(&key("a/x"));
    store.remove(&key("a/y"));
    store.remove(&key("a/y"));
    assert_eq!((store.len(), store.bytes()), (0, 0));
    assert_eq!((clone.len(), clone.bytes()), (1, one));
}

#[test]
fn without_a_key_and_an_index_a_list_examines_all() {
    let mut store = Store::new(&config());
    store.insert(Arc::new(object("a/x", "u", 1, "web")));
    let mut other_label = with_label("web");
    other_label.labels.requirements[0].key = "tier".to_owned();
    let of_namespace = Selection {
        namespace: Some("a".to_owned()),
        ..other_label.clone()
    };
    for (selection, expected) in [
        (Selection::default(), false),
        (in_namespace("a"), false),
        (with_label("web"), false),
        (other_label, true),
        (of_namespace, false),
        (with_field(Field::Value(0), true, "web"), false),
        (with_field(Field::Value(0), false, "web"), true),
        (with_field(Field::Name, true, "x"), false),
        (with_field(Field::Namespace, true, "a"), false),
    ] {
        assert_eq!(store.examines_all(&selection), expected, "{selection:?}");
    }
}
