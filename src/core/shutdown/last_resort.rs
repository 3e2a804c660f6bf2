//! Ends the process by signals that its program does not take, because it hangs or waits for
//! something else.

use std::{io, thread};

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Duration, Instant};

/// How long a program may take to notice a signal before a further one ends the process.
const PATIENCE: Duration = Duration::from_secs(1);

static STATE: Mutex<State> = Mutex::new(State {
    is_watching: false,
    users: 0,
    waiting_since: None,
    taken_at: None,
});

/// While one of these exists, the process takes signals itself, as long as it reacts to them.
#[derive(Debug)]
pub(super) struct LastResort(());

#[derive(Debug)]
struct State {
    is_watching: bool,
    users: usize,
    /// When the first signal arrived that was perhaps not taken.
    waiting_since: Option<Instant>,
    taken_at: Option<Instant>,
}

impl LastResort {
    /// Begins to take signals for the process.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub(super) fn new() -> io::Result<Self> {
        let mut state = STATE.lock();
        if !state.is_watching {
            watch()?;
            state.is_watching = true;
        }
        state.users += 1;
        Ok(Self(()))
    }

    /// Records that the program has taken a signal.
    pub(super) fn taken(&self) {
        STATE.lock().taken_at = Some(Instant::now());
    }
}

impl Drop for LastResort {
    fn drop(&mut self) {
        STATE.lock().users -= 1;
    }
}

impl State {
    /// Returns whether the signal that arrives at `now` ends the process: nothing takes signals any
    /// more, or an earlier one was not taken.
    fn ends_process(&mut self, now: Instant) -> bool {
        if self.users == 0 {
            // The program may be ending because of the signal that it took, and so
            // take no more signals.
            return self.taken_at.is_none_or(|taken| taken + PATIENCE < now);
        }
        let Some(since) = self.waiting_since else {
            self.waiting_since = Some(now);
            return false;
        };
        // The program and this thread notice a signal in either order.
        let was_taken = self.taken_at.is_some_and(|taken| taken + PATIENCE >= since);
        if was_taken {
            self.waiting_since = Some(now);
        }
        !was_taken && now.duration_since(since) >= PATIENCE
    }
}

/// Watches signals in a separate thread, because all other threads of the program may hang.
fn watch() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (terminate, interrupt) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        )
    };
    let watching = move || runtime.block_on(end_process(terminate, interrupt));
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(watching).map(drop)
}

async fn end_process(mut terminate: Signal, mut interrupt: Signal) {
    loop {
        let kind = tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
        };
        if STATE.lock().ends_process(Instant::now()) {
            // The exit code that shells report when a signal has ended a process.
            std::process::exit(128 + kind.as_raw_value());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(users: usize) -> State {
        State {
            is_watching: true,
            users,
            waiting_since: None,
            taken_at: None,
        }
    }

    #[test]
    fn only_a_signal_after_one_that_was_not_taken_ends_the_process() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        // The two signals of a terminal that is closed, then one more.
        let mut hanging = state(1);
        let ends = [0, 10, 3_000].map(|time| hanging.ends_process(at(time)));
        assert_eq!(ends, [false, false, true]);
        // The program takes the first one late, and then another one.
        let mut slow = state(1);
        assert!(!slow.ends_process(at(0)));
        slow.taken_at = Some(at(5_000));
        assert!(!slow.ends_process(at(6_000)));
        slow.taken_at = Some(at(6_000));
        assert!(!slow.ends_process(at(60_000)));
        // It hangs from now on.
        assert!(slow.ends_process(at(62_000)));
        let mut ending = state(0);
        assert!(ending.ends_process(at(0)));
        ending.taken_at = Some(at(100));
        let ends = [110, 5_000].map(|time| ending.ends_process(at(time)));
        assert_eq!(ends, [false, true]);
    }
}
