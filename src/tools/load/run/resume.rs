//! The resume phase: cuts all connections of watchers at once, writes on, and waits until every
//! watcher is live again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kubefan_core::shutdown::Shutdown;
use tokio::time::{Instant, sleep};

use crate::load::error::Error;
use crate::load::progress::Progress;
use crate::load::run_state::{RunState, SYNC_LIMIT};
use crate::load::usage::{Sample, UsageSource, sample_all};
use crate::load::write::writer::{WriteJob, WriteStats, write};

/// The interval between checks of the number of live watchers.
const TICK: Duration = Duration::from_millis(10);

/// The resume phase of a run.
pub(super) struct ResumePhase<'a> {
    pub(super) run_state: &'a RunState,
    pub(super) shutdown: &'a Shutdown,
    pub(super) sources: &'a [UsageSource],
}

/// The results of the resume phase.
pub(super) struct ResumeStats {
    pub(super) write_stats: WriteStats,
    /// The number of watchers that were live again.
    pub(super) live: u64,
    /// The CPU time in seconds of each source until then; `None` if unknown.
    pub(super) cpu_seconds: Vec<Option<f64>>,
}

impl ResumePhase<'_> {
    /// Runs the phase, whose writes follow those of `first`. `before` has the figures of the sources
    /// before the cut.
    pub(super) async fn run(
        &self,
        mut job: WriteJob,
        first: &WriteStats,
        before: &[Result<Sample, String>],
        progress: &mut Progress,
    ) -> Result<ResumeStats, Error> {
        job.schedule = job.schedule.followed_by(SYNC_LIMIT);
        job.sent_before.clone_from(&first.sent);
        let start = self.run_state.cut_connections();
        let live = async {
            let live = self.wait_until_live(progress).await;
            let after = sample_all(self.sources).await;
            self.run_state.end_writing();
            (live, after)
        };
        let (write_stats, (live, after)) = tokio::join!(write(job, start, self.shutdown), live);
        self.run_state.check()?;
        let samples = before.iter().zip(&after);
        Ok(ResumeStats {
            write_stats,
            live,
            cpu_seconds: samples.map(|(before, after)| cpu(before, after)).collect(),
        })
    }

    /// Waits until every watcher has received an event of a write after the cut. Gives up at a
    /// signal, after a failure and after [`SYNC_LIMIT`]. Returns the number of live watchers.
    async fn wait_until_live(&self, progress: &mut Progress) -> u64 {
        let watchers = self.run_state.config.watchers;
        let started = Instant::now();
        loop {
            let live = self.run_state.live.load(Ordering::Relaxed);
            if self.shutdown.is_draining() {
                self.run_state.cut_short();
            }
            let is_over = self.run_state.is_writing_over() || started.elapsed() > SYNC_LIMIT;
            if live >= watchers as usize || is_over {
                let seconds = started.elapsed().as_secs_f64();
                progress.print_line(&format!(
                    "{live} of {watchers} watchers are live again, {seconds:.2} s after the cut"
                ));
                return live as u64;
            }
            let done = live as f64 / f64::from(watchers);
            progress.show("live again", done, &format!("{live} of {watchers}"));
            sleep(TICK).await;
        }
    }
}

/// Returns the CPU time between two samples; `None` if one of them is missing.
fn cpu(before: &Result<Sample, String>, after: &Result<Sample, String>) -> Option<f64> {
    let (before, after) = (before.as_ref().ok()?, after.as_ref().ok()?);
    // The difference is negative if the server was restarted.
    Some((after.cpu_seconds - before.cpu_seconds).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_needs_both_samples() {
        let sample = |cpu_seconds| {
            Ok(Sample {
                cpu_seconds,
                resident_bytes: 1,
            })
        };
        let missing = || Err("gone".to_owned());
        for (before, after, expected) in [
            (sample(1.0), sample(1.5), Some(0.5)),
            (sample(1.5), sample(1.0), Some(0.0)),
            (missing(), sample(1.0), None),
            (sample(1.0), missing(), None),
        ] {
            assert_eq!(cpu(&before, &after), expected);
        }
    }
}
