use super::*;

const ALL: Wanted = Wanted {
    first: 0,
    step: 1,
    objects: 2,
};

fn written(acknowledged: u32) -> Written {
    Written {
        acknowledged,
        perhaps_more: false,
    }
}

/// Events as (object, write); versions count up.
fn checked(events: &[(u32, u32)]) -> Checker {
    let mut checker = Checker::new(ALL);
    for (version, (object, sequence)) in (1..).zip(events) {
        checker.take(*object, *sequence, Some(version), false);
    }
    checker
}

#[test]
fn each_kind_of_loss_is_noticed() {
    let faults = |missed, duplicated, out_of_order, unwanted| Faults {
        missed,
        duplicated,
        out_of_order,
        unwanted,
    };
    let start = [(0, 0), (1, 0)];
    type Told = [(u32, u32)];
    let table: [(&str, &Told, Faults); 8] = [
        ("all", &[(0, 1), (1, 1), (0, 2)], faults(0, 0, 0, 0)),
        ("one dropped", &[(1, 1), (0, 2)], faults(1, 0, 0, 0)),
        ("the last dropped", &[(0, 1), (1, 1)], faults(1, 0, 0, 0)),
        (
            "an object's only one dropped",
            &[(0, 1), (0, 2)],
            faults(1, 0, 0, 0),
        ),
        (
            "one twice",
            &[(0, 1), (0, 1), (1, 1), (0, 2)],
            faults(0, 1, 0, 0),
        ),
        ("swapped", &[(0, 2), (0, 1), (1, 1)], faults(0, 0, 1, 0)),
        (
            "of another selector",
            &[(0, 1), (1, 1), (0, 2), (2, 1)],
            faults(0, 0, 0, 1),
        ),
        (
            "never written",
            &[(0, 1), (1, 1), (0, 2), (1, 2)],
            faults(0, 0, 0, 1),
        ),
    ];
    for (name, events, expected) in table {
        let checker = checked(&[&start, events].concat());
        assert_eq!(
            checker.finish(&[written(2), written(1)]),
            expected,
            "{name}"
        );
    }
    let nothing = Checker::new(ALL);
    assert_eq!(
        nothing.finish(&[written(2), written(1)]),
        faults(5, 0, 0, 0)
    );
}

#[test]
fn a_write_of_unknown_outcome_may_come_or_not() {
    let perhaps = Written {
        acknowledged: 1,
        perhaps_more: true,
    };
    let start = [(0, 0), (1, 0), (0, 1), (1, 1)];
    for (events, unwanted) in [(&[][..], 0), (&[(0, 2)], 0), (&[(0, 2), (0, 3)], 1)] {
        let checker = checked(&[&start, events].concat());
        let faults = checker.finish(&[perhaps, written(1)]);
        assert_eq!(
            (faults.missed, faults.unwanted),
            (0, unwanted),
            "{events:?}"
        );
    }
}

#[test]
fn versions_must_grow_but_for_states() {
    let mut checker = Checker::new(ALL);
    assert_eq!(checker.take(0, 0, Some(9), true), Verdict::Delivered);
    assert!(!checker.has_seen_all());
    assert_eq!(checker.take(1, 0, Some(8), true), Verdict::Delivered);
    assert!(checker.has_seen_all());
    assert_eq!(checker.take(0, 1, Some(11), false), Verdict::Delivered);
    assert_eq!(checker.take(1, 1, Some(10), false), Verdict::Delivered);
    assert_eq!(checker.finish(&[written(1), written(1)]).out_of_order, 1);
    checker.begin_anew();
    assert_eq!(checker.take(0, 1, Some(11), true), Verdict::Repeated);
    assert_eq!(checker.take(1, 1, Some(10), true), Verdict::Repeated);
    assert_eq!(checker.take(0, 2, Some(12), false), Verdict::Delivered);
    assert_eq!(checker.finish(&[written(2), written(1)]).out_of_order, 1);
}

#[test]
fn an_event_has_one_fault_whatever_its_version() {
    // Versions as a server that swaps or repeats tells them.
    let told = |events: &[(u32, u64)]| {
        let mut checker = Checker::new(Wanted { objects: 1, ..ALL });
        checker.take(0, 0, Some(1), true);
        for (sequence, version) in events {
            checker.take(0, *sequence, Some(*version), false);
        }
        checker.finish(&[written(2)])
    };
    let duplicated = Faults {
        duplicated: 1,
        ..Faults::default()
    };
    let swapped = Faults {
        out_of_order: 1,
        ..Faults::default()
    };
    assert_eq!(told(&[(1, 2), (2, 3)]), Faults::default());
    assert_eq!(told(&[(1, 2), (1, 2), (2, 3)]), duplicated);
    assert_eq!(told(&[(1, 2), (2, 3), (1, 2)]), duplicated);
    assert_eq!(told(&[(2, 3), (1, 2)]), swapped);
}

#[test]
fn versions_that_are_no_numbers_have_no_order() {
    let mut checker = Checker::new(ALL);
    for (object, sequence) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        assert_eq!(
            checker.take(object, sequence, None, false),
            Verdict::Delivered
        );
    }
    assert!(checker.finish(&[written(1), written(1)]).is_empty());
}

#[test]
fn selectors_want_every_nth_object() {
    let wanted = Wanted {
        first: 3,
        step: 5,
        objects: 14,
    };
    assert_eq!(wanted.count(), 3);
    let positions: Vec<_> = (0..20)
        .filter_map(|object| wanted.position(object))
        .collect();
    assert_eq!(positions, [0, 1, 2]);
    assert_eq!(
        (0..3).map(|at| wanted.object(at)).collect::<Vec<_>>(),
        [3, 8, 13]
    );
    assert_eq!(
        Wanted {
            first: 14,
            ..wanted
        }
        .count(),
        0
    );
}
