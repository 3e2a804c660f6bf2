//! The queue: which deltas each operation causes, and their order.

use futures_util::FutureExt;

use crate::delta_fifo::Delta::{
    Added, Deleted, DeletedFinalStateUnknown as Unknown, Replaced, Sync, Updated,
};
use crate::delta_fifo::{Delta, DeltaFifo, Popped};

/// An object: its key and its version.
type Obj = (&'static str, u32);
type Fifo = DeltaFifo<&'static str, Obj>;

fn fifo() -> Fifo {
    Fifo::new(|object: &Obj| object.0)
}

fn pop(fifo: &Fifo) -> Option<Popped<'_, &'static str, Obj>> {
    fifo.pop().now_or_never().flatten()
}

/// Processes everything in the queue, and returns it.
fn process_all(fifo: &Fifo) -> Vec<Vec<Delta<Obj>>> {
    let next = || {
        let popped = pop(fifo)?;
        let deltas = popped.deltas().to_vec();
        popped.done();
        Some(deltas)
    };
    std::iter::from_fn(next).collect()
}

/// Returns an empty queue that has already processed these objects.
fn knowing(objects: &[Obj]) -> Fifo {
    let fifo = fifo();
    fifo.replace(objects.iter().copied());
    process_all(&fifo);
    fifo
}

/// Sorts the deltas by key, for operations that queue in any order.
fn sorted(mut deltas: Vec<Vec<Delta<Obj>>>) -> Vec<Vec<Delta<Obj>>> {
    deltas.sort_by_key(|deltas| deltas[0].object().0);
    deltas
}

#[test]
fn all_changes_of_an_object_are_popped_together_in_order() {
    let fifo = fifo();
    fifo.add(("a", 1));
    fifo.add(("b", 2));
    fifo.update(("a", 3));
    fifo.delete(("a", 4));
    fifo.add(("a", 5));
    assert_eq!(fifo.len(), 2);
    let popped = pop(&fifo).unwrap();
    assert_eq!(*popped.key(), "a");
    assert_eq!(*popped.deltas().oldest(), Added(("a", 1)));
    assert_eq!(*popped.deltas().newest(), Added(("a", 5)));
    let expected = [
        Added(("a", 1)),
        Updated(("a", 3)),
        Deleted(("a", 4)),
        Added(("a", 5)),
    ];
    assert_eq!(popped.deltas()[..], expected);
    popped.done();
    assert_eq!(process_all(&fifo), [[Added(("b", 2))]]);
    assert!(fifo.is_empty());
}

#[test]
fn objects_are_popped_in_the_order_of_their_first_change() {
    let fifo = fifo();
    for object in [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)] {
        fifo.add(object);
    }
    let keys: Vec<_> = process_all(&fifo).iter().map(|d| d[0].object().0).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    // A popped object that changes again is queued behind the objects that are waiting already.
    fifo.add(("a", 6));
    fifo.add(("b", 7));
    let popped = pop(&fifo).unwrap();
    fifo.update(("a", 8));
    popped.done();
    let expected = [[Added(("b", 7))], [Updated(("a", 8))]];
    assert_eq!(process_all(&fifo), expected);
}

#[test]
fn deletions_in_a_row_are_one_with_the_final_state() {
    let deletions: [fn(&Fifo); 4] = [
        |fifo| {
            fifo.delete(("a", 2));
            fifo.delete(("a", 3));
        },
        |fifo| {
            fifo.delete(("a", 2));
            fifo.delete_final_state_unknown(("a", 1));
        },
        |fifo| {
            fifo.delete_final_state_unknown(("a", 1));
            fifo.delete(("a", 2));
        },
        |fifo| {
            fifo.replace([]);
            fifo.delete(("a", 2));
        },
    ];
    for (number, delete) in deletions.iter().enumerate() {
        let fifo = knowing(&[("a", 1)]);
        delete(&fifo);
        assert_eq!(process_all(&fifo), [[Deleted(("a", 2))]], "case {number}");
        assert_eq!(fifo.known(&"a"), None);
    }
    let fifo = knowing(&[("a", 1)]);
    fifo.delete_final_state_unknown(("a", 1));
    fifo.replace([]);
    assert_eq!(process_all(&fifo), [[Unknown(("a", 1))]]);
}

#[test]
fn the_deletion_of_an_object_that_does_not_exist_is_ignored() {
    let fifo = fifo();
    fifo.delete(("a", 1));
    assert!(fifo.is_empty());
    // The list has reported the deletion already.
    let fifo = knowing(&[("a", 1)]);
    fifo.replace([]);
    process_all(&fifo);
    fifo.delete(("a", 2));
    assert!(fifo.is_empty());
    // The deletion is in process.
    let fifo = knowing(&[("a", 1)]);
    fifo.delete(("a", 2));
    let popped = pop(&fifo).unwrap();
    fifo.delete(("a", 2));
    fifo.replace([]);
    popped.done();
    assert!(fifo.is_empty());
}

#[test]
fn an_object_that_is_known_queued_or_in_process_can_be_deleted() {
    let known = knowing(&[("a", 1)]);
    known.delete(("a", 2));
    assert_eq!(process_all(&known), [[Deleted(("a", 2))]]);
    let queued = fifo();
    queued.add(("a", 1));
    queued.delete(("a", 2));
    let expected = [[Added(("a", 1)), Deleted(("a", 2))]];
    assert_eq!(process_all(&queued), expected);
    let in_process = fifo();
    in_process.add(("a", 1));
    let popped = pop(&in_process).unwrap();
    in_process.delete(("a", 2));
    popped.done();
    assert_eq!(process_all(&in_process), [[Deleted(("a", 2))]]);
}

#[test]
fn a_list_replaces_all_objects_and_finds_what_vanished() {
    // The state that counts is the queued one, else the one in process, else the processed one.
    let fifo = knowing(&[("known", 1), ("in process", 1), ("queued", 1), ("stays", 1)]);
    fifo.update(("in process", 2));
    let popped = pop(&fifo).unwrap();
    fifo.update(("queued", 3));
    fifo.add(("new and queued", 4));
    fifo.replace([("stays", 5), ("listed", 6)]);
    popped.done();
    let expected = [
        vec![Unknown(("in process", 2))],
        vec![Unknown(("known", 1))],
        vec![Replaced(("listed", 6))],
        vec![Added(("new and queued", 4)), Unknown(("new and queued", 4))],
        vec![Updated(("queued", 3)), Unknown(("queued", 3))],
        vec![Replaced(("stays", 5))],
    ];
    assert_eq!(sorted(process_all(&fifo)), expected);
    let mut known = fifo.all_known();
    known.sort_unstable();
    assert_eq!(known, [("listed", 6), ("stays", 5)]);
}

#[test]
fn a_deletion_in_the_queue_remains_one_when_a_list_follows() {
    let fifo = knowing(&[("a", 1)]);
    fifo.delete(("a", 2));
    fifo.replace([("b", 3)]);
    let expected = [vec![Deleted(("a", 2))], vec![Replaced(("b", 3))]];
    assert_eq!(sorted(process_all(&fifo)), expected);
    // The object is back in the list.
    let fifo = knowing(&[("a", 1)]);
    fifo.delete(("a", 2));
    fifo.replace([("a", 3)]);
    assert_eq!(
        process_all(&fifo),
        [[Deleted(("a", 2)), Replaced(("a", 3))]]
    );
    assert_eq!(fifo.known(&"a"), Some(("a", 3)));
}

#[test]
fn a_list_is_appended_to_the_changes_in_the_queue() {
    let fifo = fifo();
    fifo.add(("a", 10));
    fifo.replace([("a", 15)]);
    let expected = [[Added(("a", 10)), Replaced(("a", 15))]];
    assert_eq!(process_all(&fifo), expected);
}

#[test]
fn a_resync_queues_the_known_objects_that_have_no_changes() {
    let fifo = fifo();
    fifo.resync();
    assert!(fifo.is_empty(), "nothing is known");
    let fifo = knowing(&[("idle", 1), ("queued", 1), ("in process", 1)]);
    fifo.update(("in process", 2));
    let popped = pop(&fifo).unwrap();
    fifo.update(("queued", 3));
    fifo.resync();
    popped.done();
    let expected = [vec![Sync(("idle", 1))], vec![Updated(("queued", 3))]];
    assert_eq!(sorted(process_all(&fifo)), expected);
    assert_eq!(fifo.known(&"idle"), Some(("idle", 1)));
}

#[test]
fn an_object_in_process_is_popped_by_no_other_consumer() {
    let fifo = fifo();
    fifo.add(("a", 1));
    let popped = pop(&fifo).unwrap();
    fifo.update(("a", 2));
    assert!(pop(&fifo).is_none());
    fifo.add(("b", 3));
    assert_eq!(process_all(&fifo), [[Added(("b", 3))]]);
    assert_eq!(fifo.known(&"a"), None, "not processed yet");
    popped.done();
    assert_eq!(fifo.known(&"a"), Some(("a", 1)));
    assert_eq!(process_all(&fifo), [[Updated(("a", 2))]]);
}

#[test]
fn changes_that_failed_are_popped_again_before_later_ones() {
    let fifo = fifo();
    fifo.add(("a", 1));
    fifo.add(("b", 2));
    let popped = pop(&fifo).unwrap();
    fifo.update(("a", 3));
    popped.requeue();
    assert_eq!(fifo.known(&"a"), None);
    let expected = [
        vec![Added(("b", 2))],
        vec![Added(("a", 1)), Updated(("a", 3))],
    ];
    assert_eq!(process_all(&fifo), expected, "behind other objects");
    // Two deletions are merged even if the processing of the first one failed.
    fifo.delete_final_state_unknown(("a", 3));
    let popped = pop(&fifo).unwrap();
    fifo.add(("a", 4));
    fifo.delete(("a", 5));
    drop(popped);
    let expected = [[Unknown(("a", 3)), Added(("a", 4)), Deleted(("a", 5))]];
    assert_eq!(process_all(&fifo), expected);
}

#[test]
fn the_first_list_is_synced_when_all_its_objects_were_processed_once() {
    let fifo = fifo();
    assert!(!fifo.has_synced());
    fifo.replace([("a", 1), ("b", 2)]);
    assert!(!fifo.has_synced());
    fifo.add(("c", 3));
    let a = pop(&fifo).unwrap();
    assert!(a.is_in_initial_list());
    let b = pop(&fifo).unwrap();
    assert!(b.is_in_initial_list());
    assert!(!fifo.has_synced(), "both are in process");
    b.done();
    assert!(!fifo.has_synced());
    a.requeue();
    assert!(fifo.has_synced(), "a failure counts");
    for key in ["c", "a"] {
        let popped = pop(&fifo).unwrap();
        assert_eq!(*popped.key(), key);
        assert!(!popped.is_in_initial_list());
        popped.done();
    }
    assert!(fifo.synced().now_or_never().is_some());
    fifo.replace([("a", 4)]);
    assert!(fifo.has_synced(), "only the first list counts");
}

#[test]
fn an_empty_list_or_any_change_before_it_is_synced() {
    let cases: [fn(&Fifo); 5] = [
        |fifo| fifo.replace([]),
        |fifo| fifo.add(("a", 1)),
        |fifo| fifo.update(("a", 1)),
        |fifo| fifo.delete(("a", 1)),
        |fifo| {
            fifo.add(("a", 1));
            fifo.replace([("b", 1)]);
        },
    ];
    for (number, case) in cases.iter().enumerate() {
        let fifo = fifo();
        let mut synced = Box::pin(fifo.synced());
        assert!((&mut synced).now_or_never().is_none());
        case(&fifo);
        assert!(fifo.has_synced(), "case {number}");
        assert!(synced.now_or_never().is_some(), "case {number}");
    }
}

#[test]
fn an_object_of_the_first_list_that_is_deleted_counts_once() {
    let fifo = fifo();
    fifo.replace([("a", 1), ("b", 1)]);
    fifo.delete(("b", 2));
    let expected = [
        vec![Replaced(("a", 1))],
        vec![Replaced(("b", 1)), Deleted(("b", 2))],
    ];
    assert_eq!(process_all(&fifo), expected);
    assert!(fifo.has_synced());
}

#[tokio::test]
async fn a_consumer_waits_for_changes_and_for_the_end() {
    let fifo = fifo();
    let (mut first, mut second) = (Box::pin(fifo.pop()), Box::pin(fifo.pop()));
    assert!((&mut first).now_or_never().is_none());
    assert!((&mut second).now_or_never().is_none());
    // One operation queues several objects, and the cancelled consumer passes its wake on.
    fifo.replace([("a", 1), ("b", 1)]);
    drop(first);
    second.await.unwrap().done();
    fifo.close();
    fifo.pop().await.unwrap().done();
    assert!(fifo.pop().await.is_none());
    let fifo = self::fifo();
    let mut waiting = Box::pin(fifo.pop());
    assert!((&mut waiting).now_or_never().is_none());
    fifo.close();
    assert!(waiting.await.is_none());
}

#[tokio::test]
async fn several_consumers_share_what_one_operation_queues() {
    let fifo = fifo();
    let consume = async || {
        let popped = fifo.pop().await.unwrap();
        let key = *popped.key();
        // No consumer ends before each has popped an object.
        tokio::task::yield_now().await;
        popped.done();
        key
    };
    let feed = async {
        tokio::task::yield_now().await;
        fifo.replace([("a", 1), ("b", 1), ("c", 1)]);
    };
    let (a, b, c, ()) = tokio::join!(consume(), consume(), consume(), feed);
    let mut keys = [a, b, c];
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
}
