//! No wake is lost, in whatever order the threads meet. Each test with an error in the protocol shows
//! that the scenarios notice it.

use kubefan_loom::Order;
use kubefan_loom::a_dispatcher_that_is_dropped;
use kubefan_loom::a_stream_beside_one_that_leaves;
use kubefan_loom::a_stream_woken_by_its_dispatcher;
use kubefan_loom::a_stream_woken_by_the_writer;
use kubefan_loom::mutation::Mutation;
use kubefan_loom::mutation::with;

type Scenario = fn(u64, Order);

fn run(scenario: Scenario, events: u64, order: Order) {
    loom::model(move || scenario(events, order));
}

#[test]
fn a_stream_is_woken_by_the_writer() {
    run(a_stream_woken_by_the_writer, 1, Order::QueueFirst);
}

#[test]
fn a_stream_is_woken_by_its_dispatcher() {
    run(a_stream_woken_by_its_dispatcher, 1, Order::QueueFirst);
}

#[test]
fn a_stream_is_woken_although_its_dispatcher_is_dropped() {
    run(a_dispatcher_that_is_dropped, 1, Order::QueueFirst);
}

#[test]
fn a_stream_is_woken_although_another_one_leaves() {
    run(a_stream_beside_one_that_leaves, 1, Order::QueueFirst);
}

#[test]
#[should_panic(expected = "a wake was lost")]
fn the_tip_must_be_read_again_after_the_waker_is_registered() {
    with(Mutation::TipNotReadAgain, || {
        run(a_stream_woken_by_the_writer, 1, Order::QueueFirst);
    });
}

#[test]
#[should_panic(expected = "a wake was lost")]
fn a_dispatched_stream_must_read_the_tip_again() {
    with(Mutation::TipNotReadAgain, || {
        run(a_stream_woken_by_its_dispatcher, 1, Order::QueueFirst);
    });
}

#[test]
#[should_panic(expected = "a wake was lost")]
fn an_event_must_be_queued_before_the_wake() {
    run(a_stream_woken_by_the_writer, 1, Order::WakeFirst);
}
