use std::future::pending;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::shutdown::{Config, Outcome, Phase, Shutdown, Signals};

fn shutdown(grace_seconds: u64) -> Shutdown {
    Shutdown::new(Config {
        not_ready_delay: Duration::from_secs(3),
        grace: Duration::from_secs(grace_seconds),
    })
}

#[tokio::test(start_paused = true)]
async fn a_signal_goes_through_the_phases_in_order() {
    let shutdown = shutdown(10);
    let start = Instant::now();
    let mut seen = Vec::new();
    for phase in [
        Phase::NotReady,
        Phase::StopAccepting,
        Phase::EndWatches,
        Phase::Done,
    ] {
        let reached = shutdown.reached(phase);
        seen.push(tokio::spawn(async move {
            reached.await;
            (phase, start.elapsed().as_secs())
        }));
    }
    let (send, signals) = Signals::manual();
    send.send("SIGTERM").unwrap();
    assert_eq!(shutdown.run(signals).await, Outcome::Drained);
    let mut at = Vec::new();
    for task in seen {
        at.push(task.await.unwrap());
    }
    assert_eq!(
        at,
        [
            (Phase::NotReady, 0),
            (Phase::StopAccepting, 3),
            (Phase::EndWatches, 3),
            (Phase::Done, 3)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_without_a_signal() {
    let shutdown = shutdown(10);
    let (_send, signals) = Signals::manual();
    let hour = Duration::from_secs(3600);
    assert!(
        tokio::time::timeout(hour, shutdown.run(signals))
            .await
            .is_err()
    );
    assert_eq!(shutdown.phase(), Phase::Serving);
    assert!(!shutdown.is_draining());
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_spawned_tasks() {
    let shutdown = shutdown(60);
    let (finish, finished) = oneshot::channel::<()>();
    let task = shutdown.spawn(async move {
        finished.await.unwrap();
        7
    });
    assert_eq!(shutdown.serving_tasks(), 1);
    let drain = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { shutdown.drain().await }
    });
    shutdown.reached(Phase::EndWatches).await;
    assert!(shutdown.is_draining());
    assert!(!drain.is_finished());
    finish.send(()).unwrap();
    assert_eq!(drain.await.unwrap(), Outcome::Drained);
    assert_eq!(task.await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn drain_gives_up_after_the_grace() {
    let shutdown = shutdown(10);
    let start = Instant::now();
    for _ in 0..2 {
        shutdown.spawn(pending::<()>());
    }
    assert_eq!(shutdown.drain().await, Outcome::Unfinished { tasks: 2 });
    assert_eq!(start.elapsed(), Duration::from_secs(13));
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_aborts() {
    let shutdown = shutdown(1000);
    shutdown.spawn(pending::<()>());
    let (send, signals) = Signals::manual();
    send.send("SIGTERM").unwrap();
    let run = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { shutdown.run(signals).await }
    });
    shutdown.draining().await;
    assert!(!run.is_finished());
    send.send("SIGINT").unwrap();
    assert_eq!(run.await.unwrap(), Outcome::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_no_longer_counted() {
    let shutdown = shutdown(10);
    let task = shutdown.spawn(async { panic!("a panic of the test") });
    let ended: Result<(), _> = task.await;
    assert!(ended.unwrap_err().is_panic());
    assert_eq!(shutdown.serving_tasks(), 0);
    assert_eq!(shutdown.drain().await, Outcome::Drained);
}

#[tokio::test(start_paused = true)]
async fn background_tasks_run_until_serving_ends() {
    let shutdown = shutdown(60);
    let (dropped, was_dropped) = oneshot::channel::<()>();
    shutdown.spawn_background(async move {
        let _dropped = dropped;
        pending::<()>().await;
    });
    let (finish, finished) = oneshot::channel::<()>();
    shutdown.spawn(async move { finished.await.unwrap() });
    let drain = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { shutdown.drain().await }
    });
    shutdown.reached(Phase::EndWatches).await;
    let mut was_dropped = was_dropped;
    assert_eq!(
        was_dropped.try_recv(),
        Err(oneshot::error::TryRecvError::Empty)
    );
    finish.send(()).unwrap();
    assert_eq!(drain.await.unwrap(), Outcome::Drained);
    assert_eq!(
        was_dropped.try_recv(),
        Err(oneshot::error::TryRecvError::Closed)
    );
}

#[tokio::test(start_paused = true)]
async fn watches_end_spread_over_time() {
    const WATCHES: u32 = 200;
    let shutdown = shutdown(60);
    let ends: Vec<_> = (0..WATCHES).map(|_| shutdown.watch_end()).collect();
    let tasks: Vec<_> = ends
        .into_iter()
        .map(|end| {
            let shutdown = shutdown.clone();
            tokio::spawn(async move {
                shutdown.reached(Phase::EndWatches).await;
                let start = Instant::now();
                end.await;
                start.elapsed()
            })
        })
        .collect();
    shutdown.drain().await;
    let mut after = Vec::new();
    for task in tasks {
        after.push(task.await.unwrap());
    }
    let last = after.iter().max().unwrap();
    // 200 × 5 ms is one second: all watches end within it, about half of them in its first half.
    assert!(*last <= Duration::from_millis(1002), "{last:?}");
    let early = after.iter().filter(|t| t.as_millis() < 500).count();
    assert!(
        (40..160).contains(&early),
        "{early} of {WATCHES} in the first half"
    );
}

#[tokio::test(start_paused = true)]
async fn one_watch_ends_at_once_and_many_within_the_grace() {
    let shutdown = shutdown(10);
    let one = shutdown.watch_end();
    assert_eq!(shutdown.watch_end_spread(), Duration::from_millis(5));
    let many: Vec<_> = (0..100_000).map(|_| shutdown.watch_end()).collect();
    assert_eq!(shutdown.watch_end_spread(), Duration::from_secs(8));
    drop(many);
    assert_eq!(shutdown.watch_end_spread(), Duration::from_millis(5));
    shutdown.drain().await;
    one.await;
}

#[tokio::test(start_paused = true)]
async fn a_late_or_cloned_future_completes_for_its_phase() {
    let shutdown = shutdown(10);
    let early = shutdown.draining();
    let clone = early.clone();
    shutdown.drain().await;
    early.await;
    clone.await;
    shutdown.draining().await;
    shutdown.reached(Phase::Done).await;
    // A second drain changes nothing, because phases never go back.
    assert_eq!(shutdown.drain().await, Outcome::Drained);
    assert_eq!(shutdown.phase(), Phase::Done);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_later_phase_survives_earlier_phases() {
    let shutdown = shutdown(10);
    // The spawned future is polled only when it is woken.
    let done = tokio::spawn(shutdown.reached(Phase::Done));
    tokio::task::yield_now().await;
    for phase in [Phase::NotReady, Phase::StopAccepting, Phase::EndWatches] {
        shutdown.enter(phase);
        tokio::task::yield_now().await;
        assert!(!done.is_finished(), "{phase:?}");
    }
    shutdown.enter(Phase::Done);
    done.await.unwrap();
}

#[tokio::test]
async fn a_dropped_waiter_frees_its_slot() {
    let shutdown = shutdown(10);
    for _ in 0..1000 {
        let mut reached = shutdown.reached(Phase::Done);
        assert!(futures::poll!(&mut reached).is_pending());
    }
    assert_eq!(shutdown.state.waiters.slots.lock().wakers.len(), 1);
}

/// Set in the process that `a_second_signal_ends_a_process_that_hangs` starts.
const CHILD: &str = "KUBEFAN_TEST_HANGING_CHILD";

#[tokio::test]
async fn a_second_signal_ends_a_process_that_hangs() {
    const NAME: &str = "shutdown::tests::a_second_signal_ends_a_process_that_hangs";
    if std::env::var_os(CHILD).is_some() {
        let _signals = Signals::of_process().unwrap();
        eprintln!("ready");
        loop {
            std::thread::park();
        }
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([NAME, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(stderr);
    assert!(lines.any(|line| line.unwrap() == "ready"));
    let mut sent = 0;
    let ended = loop {
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        // Signals are repeated until one comes a second after the first.
        if sent < 600 {
            sent += 1;
            let pid = child.id().to_string();
            let kill = ["-TERM", pid.as_str()];
            std::process::Command::new("kill")
                .args(kill)
                .status()
                .unwrap();
        } else {
            child.kill().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(ended.code(), Some(143), "after {sent} signals");
    assert!(sent >= 2, "the first signal was not kept");
}
