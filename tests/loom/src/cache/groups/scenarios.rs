//! What a writer, streams and a dispatcher do at the same time. In the end every stream must have
//! every event, or have been woken since it last waited.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Wake;
use std::task::Waker;

use loom::sync::atomic::AtomicBool;
use loom::thread;

use crate::api::Selection;
use crate::cache::groups::group::Group;
use crate::cache::groups::group::QueueRead;
use crate::cache::log::Batch;
use crate::cache::log::Event;
use crate::cache::wake::Dispatcher;
use crate::cache::wake::Registration;

/// The order of the writer's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The writer queues an event, then wakes. This is kubefan's order.
    QueueFirst,
    /// The writer wakes before it queues the event, which is wrong.
    WakeFirst,
}

struct Flag(AtomicBool);

struct Stream {
    group: Arc<Group>,
    number: u64,
    position: u64,
    batch: Batch,
    registration: Registration,
    woken: Arc<Flag>,
    received: u64,
    is_closed: bool,
}

// === impl Flag ===

impl Flag {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(false)))
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

// === impl Stream ===

impl Stream {
    fn new(group: &Arc<Group>) -> Self {
        Self {
            group: Arc::clone(group),
            number: 0,
            position: 0,
            batch: Batch::new(),
            registration: Registration::default(),
            woken: Flag::new(),
            received: 0,
            is_closed: false,
        }
    }

    /// Reads until the stream waits or has ended.
    fn poll(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        while !self.is_closed {
            let at = (self.number, self.position);
            let registration = &mut self.registration;
            let read = self
                .group
                .read(at, 64, &mut self.batch, registration, &waker);
            match read.0 {
                QueueRead::Events(number, position) => {
                    self.received += self.batch.drain(..).count() as u64;
                    (self.number, self.position) = (number, position);
                }
                QueueRead::AtTip => return,
                QueueRead::Closed => self.is_closed = true,
                QueueRead::Behind | QueueRead::Expired => panic!("nothing was evicted"),
            }
        }
    }

    /// Runs the stream as long as it is woken, and checks that it has everything then.
    fn check(mut self, events: u64) {
        while self.woken.take() {
            self.poll();
        }
        assert!(
            self.received == events && self.is_closed,
            "a wake was lost after {} of {events} events",
            self.received
        );
    }
}

/// The writer's part: queues and wakes for each event, then closes the group.
fn write(group: &Group, events: u64, order: Order) {
    let mut wakers = Vec::new();
    for position in 0..events {
        if order == Order::WakeFirst {
            group.wakes.notify(&mut wakers);
        }
        group.offer(position, &Arc::new(Event));
        if order == Order::QueueFirst {
            group.wakes.notify(&mut wakers);
        }
    }
    group.close();
    if order == Order::QueueFirst {
        group.wakes.notify(&mut wakers);
    }
}

fn new_group() -> Arc<Group> {
    Arc::new(Group::new(0, Arc::new(Selection), 0))
}

fn dispatch(dispatcher: &mut Dispatcher, woken: &Arc<Flag>) {
    let waker = Waker::from(Arc::clone(woken));
    let polled = Pin::new(dispatcher).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
}

/// A stream waits while the writer queues `events` events and closes the group.
pub fn a_stream_woken_by_the_writer(events: u64, order: Order) {
    let group = new_group();
    let mut stream = Stream::new(&group);
    let reader = thread::spawn(move || {
        stream.poll();
        stream
    });
    write(&group, events, order);
    reader.join().expect("a stream").check(events);
}

/// The same on a thread whose dispatcher wakes the stream.
pub fn a_stream_woken_by_its_dispatcher(events: u64, order: Order) {
    let group = new_group();
    let mut stream = Stream::new(&group);
    let reader = thread::spawn(move || {
        let (mut dispatcher, woken) = (Dispatcher::install(), Flag::new());
        dispatch(&mut dispatcher, &woken);
        stream.poll();
        (dispatcher, woken, stream)
    });
    write(&group, events, order);
    let (mut dispatcher, woken, stream) = reader.join().expect("a stream");
    while woken.take() {
        dispatch(&mut dispatcher, &woken);
    }
    stream.check(events);
}

/// The dispatcher is dropped while the writer passes a list of wakers to it.
pub fn a_dispatcher_that_is_dropped(events: u64, order: Order) {
    let group = new_group();
    let mut stream = Stream::new(&group);
    let reader = thread::spawn(move || {
        let (mut dispatcher, woken) = (Dispatcher::install(), Flag::new());
        dispatch(&mut dispatcher, &woken);
        stream.poll();
        drop(dispatcher);
        stream
    });
    write(&group, events, order);
    reader.join().expect("a stream").check(events);
}

/// A stream waits, and another one of the same group waits and leaves while the writer works.
pub fn a_stream_beside_one_that_leaves(events: u64, order: Order) {
    let group = new_group();
    let mut stays = Stream::new(&group);
    let mut leaves = Stream::new(&group);
    stays.poll();
    let reader = thread::spawn(move || {
        leaves.poll();
        drop(leaves);
    });
    write(&group, events, order);
    reader.join().expect("a stream");
    stays.check(events);
}
