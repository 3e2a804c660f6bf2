use std::future::{pending, poll_fn};
use std::sync::atomic::AtomicUsize;
use std::thread;

use futures_util::FutureExt;
use tokio::task::coop::{consume_budget, has_budget_remaining};

use super::*;

/// Polls the streams of a connection as its task does.
struct Task {
    streams: Streams,
    wakes: Arc<Count>,
}

#[derive(Default)]
struct Count(AtomicUsize);

/// Observes a stream that never ends.
#[derive(Clone, Default)]
struct Probe(Arc<Mutex<Probed>>);

#[derive(Default)]
struct Probed {
    polls: usize,
    waker: Option<Waker>,
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Task {
    fn new() -> Self {
        let mut task = Self {
            streams: Streams::new(),
            wakes: Arc::default(),
        };
        assert_eq!(
            task.poll(),
            (1, false),
            "the first poll is the connection's"
        );
        task
    }

    fn start(&mut self, stream: impl Future<Output = ()> + Send + 'static) -> Arc<StreamHandle> {
        let mut started = None;
        self.streams.open.start(|handle| {
            started = Some(Arc::clone(handle));
            stream
        });
        started.unwrap()
    }

    /// Returns how often the connection was polled, and whether more follows.
    fn poll(&mut self) -> (usize, bool) {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let (mut polls, mut more) = (0, false);
        let connection = |_: &mut Context<'_>, _: &mut OpenStreams| -> Poll<io::Result<()>> {
            polls += 1;
            Poll::Pending
        };
        let flush = |_: &mut Context<'_>, more_follows| {
            more = more_follows;
            Poll::Ready(Ok(()))
        };
        let polled = self
            .streams
            .poll(&mut Context::from_waker(&waker), connection, flush);
        assert!(polled.is_pending());
        (polls, more)
    }

    /// Returns how often the task was woken since the last call.
    fn wakes(&self) -> usize {
        self.wakes.0.swap(0, Ordering::Relaxed)
    }
}

impl Probe {
    fn stream(&self) -> impl Future<Output = ()> + Send + use<> {
        let probe = self.clone();
        poll_fn(move |cx| {
            let mut probed = probe.0.lock();
            probed.polls += 1;
            probed.waker = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn wake(&self) {
        let waker = self.0.lock().waker.clone();
        waker.expect("it was polled").wake();
    }

    fn polls(&self) -> usize {
        self.0.lock().polls
    }

    fn is_dropped(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

#[test]
fn wakes_of_many_streams_wake_the_task_once() {
    let mut task = Task::new();
    let probes: [Probe; 3] = Default::default();
    for probe in &probes {
        task.start(probe.stream());
    }
    assert_eq!(task.poll(), (0, false));
    for probe in &probes {
        probe.wake();
        probe.wake();
    }
    assert_eq!(task.wakes(), 1);
    assert_eq!(task.poll(), (0, false));
    assert_eq!(probes.each_ref().map(Probe::polls), [2, 2, 2]);
    assert_eq!(task.poll(), (0, false));
    assert_eq!(probes.each_ref().map(Probe::polls), [2, 2, 2], "not woken");
}

#[test]
fn the_connection_takes_the_frames_of_all_streams_in_one_poll() {
    let mut task = Task::new();
    for _ in 0..3 {
        let connection = task.streams.connection.clone();
        task.start(poll_fn(move |_| {
            connection.wake_by_ref();
            Poll::Pending
        }));
    }
    assert_eq!(task.poll(), (1, false));
    assert_eq!(task.wakes(), 0, "a wake of the task that runs");
    task.streams.connection.wake_by_ref();
    assert_eq!(task.wakes(), 1);
    assert_eq!(task.poll(), (1, false));
}

#[test]
fn an_aborted_stream_is_dropped_and_no_other() {
    for (polls_before, aborts) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        let mut task = Task::new();
        let probe = Probe::default();
        let handle = task.start(probe.stream());
        for _ in 0..polls_before {
            task.poll();
        }
        task.wakes();
        for _ in 0..aborts {
            handle.abort();
        }
        assert_eq!(task.wakes(), polls_before, "it is woken already, or waits");
        task.poll();
        assert!(probe.is_dropped());
        assert_eq!(probe.polls(), polls_before);
        // The next stream has the same key.
        let next = Probe::default();
        task.start(next.stream());
        task.poll();
        handle.abort();
        task.poll();
        assert!(!next.is_dropped());
    }
}

#[test]
fn a_panic_ends_only_its_stream() {
    struct PanicsInDrop;

    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("a panic of a stream that is dropped");
        }
    }

    let mut task = Task::new();
    let probe = Probe::default();
    task.start(poll_fn(|_| panic!("a panic of a stream")));
    let value = PanicsInDrop;
    let aborted = task.start(async move {
        let _value = value;
        pending().await
    });
    task.start(probe.stream());
    task.poll();
    assert_eq!(probe.polls(), 1);
    aborted.abort();
    probe.wake();
    task.poll();
    assert_eq!(probe.polls(), 2);
    assert_eq!(task.streams.open.streams.len(), 1);
}

#[test]
fn streams_that_are_always_ready_leave_turns_to_others() {
    let mut task = Task::new();
    let polls = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let polls = Arc::clone(&polls);
        task.start(poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
    }
    assert_eq!(task.poll(), (0, true));
    assert_eq!(polls.load(Ordering::Relaxed), MAX_ROUNDS * MAX_POLLED);
    assert_eq!(task.wakes(), 1, "it continues after other tasks");
    let new = Probe::default();
    task.start(new.stream());
    for _ in 0..3 {
        task.streams.connection.wake_by_ref();
        assert_eq!(task.poll(), (1, true));
    }
    assert_eq!(new.polls(), 1);
}

#[test]
fn a_wake_during_the_poll_of_a_stream_makes_it_be_polled_again() {
    let polls_after = |wake: fn(&Waker)| {
        let mut task = Task::new();
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        task.start(poll_fn(move |cx| {
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                wake(cx.waker());
            }
            Poll::Pending
        }));
        assert_eq!(task.poll(), (0, false));
        polls.load(Ordering::Relaxed)
    };
    let by_thread = |waker: &Waker| {
        let waker = waker.clone();
        thread::spawn(move || waker.wake()).join().unwrap();
    };
    assert_eq!(polls_after(|_| {}), 1);
    assert_eq!(polls_after(Waker::wake_by_ref), 2);
    assert_eq!(polls_after(by_thread), 2);
}

#[test]
fn a_stream_that_the_connection_starts_is_polled_without_a_wake_of_the_task() {
    let mut task = Task::new();
    task.streams.connection.wake_by_ref();
    task.wakes();
    let probe = Probe::default();
    let connection = |_: &mut Context<'_>, open: &mut OpenStreams| -> Poll<io::Result<()>> {
        open.start(|_| probe.stream());
        Poll::Pending
    };
    let flush = |_: &mut Context<'_>, more_follows: bool| {
        assert!(!more_follows);
        Poll::Ready(Ok(()))
    };
    let waker = Waker::from(Arc::clone(&task.wakes));
    let mut cx = Context::from_waker(&waker);
    let polled = task.streams.poll(&mut cx, connection, flush);
    assert!(polled.is_pending());
    assert_eq!((probe.polls(), task.wakes()), (1, 0));
}

#[test]
fn an_abort_that_is_kept_does_not_keep_the_task() {
    let mut task = Task::new();
    let handle = task.start(pending());
    task.poll();
    let wakes = Arc::clone(&task.wakes);
    drop(task);
    assert_eq!(Arc::strong_count(&wakes), 1);
    handle.abort();
}

#[tokio::test]
async fn the_end_of_the_connection_drops_all_streams() {
    for is_ended in [false, true] {
        let mut task = Task::new();
        let probes: Vec<Probe> = (0..3 * MAX_POLLED).map(|_| Probe::default()).collect();
        for probe in &probes {
            task.start(probe.stream());
        }
        task.poll();
        let started = Probe::default();
        task.start(started.stream());
        if is_ended {
            task.streams.end().await;
            assert!(probes.iter().all(Probe::is_dropped));
        }
        drop(task);
        assert!(probes.iter().all(Probe::is_dropped));
        assert!(started.is_dropped());
    }
}

#[tokio::test]
async fn a_stream_does_not_depend_on_the_budget_of_the_task() {
    while has_budget_remaining() {
        consume_budget().now_or_never();
    }
    let mut task = Task::new();
    let has_budget = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&has_budget);
    task.start(async move { seen.store(has_budget_remaining(), Ordering::Relaxed) });
    task.poll();
    assert!(has_budget.load(Ordering::Relaxed));
}

/// Panics when it is dropped while a panic of the connection is handled, as a request's body does
/// that needs a poisoned lock.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_of_the_connection_ends_it_and_drops_no_stream() {
    let mut task = Task::new();
    let held = PanicsWhenDropped;
    task.start(async move {
        let _held = held;
        pending::<()>().await;
    });
    task.poll();
    task.streams.connection.wake_by_ref();
    let mut cx = Context::from_waker(Waker::noop());
    let connection =
        |_: &mut Context<'_>, _: &mut OpenStreams| -> Poll<io::Result<()>> { panic!("a bug") };
    let polled = task.streams.poll(&mut cx, connection, |_, _| Poll::Pending);
    assert!(matches!(polled, Poll::Ready(Err(_))));
}
