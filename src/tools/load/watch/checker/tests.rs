use super::*;

const ALL: SelectedObjects = SelectedObjects {
    first: 0,
    step: 1,
    objects: 2,
};

fn writes(acknowledged: u32) -> ObjectWrites {
    ObjectWrites {
        acknowledged,
        has_unknown_outcome: false,
    }
}

/// Records events, given as (object, write), with ascending versions from 1.
fn checked(events: &[(u32, u32)]) -> Checker {
    let mut checker = Checker::new(ALL);
    for (version, (object, sequence)) in (1..).zip(events) {
        checker.record(*object, *sequence, Some(version), false);
    }
    checker
}

#[test]
fn each_kind_of_loss_is_noticed() {
    let errors = |missed, duplicated, out_of_order, unwanted| DeliveryErrors {
        missed,
        duplicated,
        out_of_order,
        unwanted,
    };
    let start = [(0, 0), (1, 0)];
    type Events = [(u32, u32)];
    let table: [(&str, &Events, DeliveryErrors); 8] = [
        ("all", &[(0, 1), (1, 1), (0, 2)], errors(0, 0, 0, 0)),
        ("one dropped", &[(1, 1), (0, 2)], errors(1, 0, 0, 0)),
        ("the last dropped", &[(0, 1), (1, 1)], errors(1, 0, 0, 0)),
        (
            "an object's only one dropped",
            &[(0, 1), (0, 2)],
            errors(1, 0, 0, 0),
        ),
        (
            "one twice",
            &[(0, 1), (0, 1), (1, 1), (0, 2)],
            errors(0, 1, 0, 0),
        ),
        ("swapped", &[(0, 2), (0, 1), (1, 1)], errors(0, 0, 1, 0)),
        (
            "of another selector",
            &[(0, 1), (1, 1), (0, 2), (2, 1)],
            errors(0, 0, 0, 1),
        ),
        (
            "never written",
            &[(0, 1), (1, 1), (0, 2), (1, 2)],
            errors(0, 0, 0, 1),
        ),
    ];
    for (name, events, expected) in table {
        let checker = checked(&[&start, events].concat());
        assert_eq!(checker.finish(&[writes(2), writes(1)]), expected, "{name}");
    }
    let nothing = Checker::new(ALL);
    assert_eq!(nothing.finish(&[writes(2), writes(1)]), errors(5, 0, 0, 0));
}

#[test]
fn a_write_of_unknown_outcome_may_be_delivered_or_not() {
    let uncertain = ObjectWrites {
        acknowledged: 1,
        has_unknown_outcome: true,
    };
    let start = [(0, 0), (1, 0), (0, 1), (1, 1)];
    for (events, unwanted) in [(&[][..], 0), (&[(0, 2)], 0), (&[(0, 2), (0, 3)], 1)] {
        let checker = checked(&[&start, events].concat());
        let errors = checker.finish(&[uncertain, writes(1)]);
        assert_eq!(
            (errors.missed, errors.unwanted),
            (0, unwanted),
            "{events:?}"
        );
    }
}

#[test]
fn versions_must_grow_except_in_initial_states() {
    let mut checker = Checker::new(ALL);
    assert_eq!(checker.record(0, 0, Some(9), true), Arrival::New);
    assert!(!checker.has_seen_all());
    assert_eq!(checker.record(1, 0, Some(8), true), Arrival::New);
    assert!(checker.has_seen_all());
    assert_eq!(checker.record(0, 1, Some(11), false), Arrival::New);
    assert_eq!(checker.record(1, 1, Some(10), false), Arrival::New);
    assert_eq!(checker.finish(&[writes(1), writes(1)]).out_of_order, 1);
    checker.restart();
    assert_eq!(checker.record(0, 1, Some(11), true), Arrival::Repeated);
    assert_eq!(checker.record(1, 1, Some(10), true), Arrival::Repeated);
    assert_eq!(checker.record(0, 2, Some(12), false), Arrival::New);
    assert_eq!(checker.finish(&[writes(2), writes(1)]).out_of_order, 1);
}

#[test]
fn an_event_has_one_delivery_error_whatever_its_version() {
    // Each event is a write and its version, as a server would send them that swaps or repeats
    // events.
    let errors_of = |events: &[(u32, u64)]| {
        let mut checker = Checker::new(SelectedObjects { objects: 1, ..ALL });
        checker.record(0, 0, Some(1), true);
        for (sequence, version) in events {
            checker.record(0, *sequence, Some(*version), false);
        }
        checker.finish(&[writes(2)])
    };
    let duplicated = DeliveryErrors {
        duplicated: 1,
        ..DeliveryErrors::default()
    };
    let swapped = DeliveryErrors {
        out_of_order: 1,
        ..DeliveryErrors::default()
    };
    assert_eq!(errors_of(&[(1, 2), (2, 3)]), DeliveryErrors::default());
    assert_eq!(errors_of(&[(1, 2), (1, 2), (2, 3)]), duplicated);
    assert_eq!(errors_of(&[(1, 2), (2, 3), (1, 2)]), duplicated);
    assert_eq!(errors_of(&[(2, 3), (1, 2)]), swapped);
}

#[test]
fn non_numeric_versions_have_no_order() {
    let mut checker = Checker::new(ALL);
    for (object, sequence) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        assert_eq!(checker.record(object, sequence, None, false), Arrival::New);
    }
    assert!(checker.finish(&[writes(1), writes(1)]).is_empty());
}

#[test]
fn selectors_select_every_nth_object() {
    let selected_objects = SelectedObjects {
        first: 3,
        step: 5,
        objects: 14,
    };
    assert_eq!(selected_objects.count(), 3);
    let positions: Vec<_> = (0..20)
        .filter_map(|object| selected_objects.position(object))
        .collect();
    assert_eq!(positions, [0, 1, 2]);
    assert_eq!(
        (0..3)
            .map(|at| selected_objects.object(at))
            .collect::<Vec<_>>(),
        [3, 8, 13]
    );
    assert_eq!(
        SelectedObjects {
            first: 14,
            ..selected_objects
        }
        .count(),
        0
    );
}
