//! Changes the objects on schedule.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::{Client, Error, Identity, collect};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};

use super::marker::Marker;
use super::objects::Objects;
use super::schedule::{Schedule, ScheduledWrite};
use crate::load::clock::nanoseconds;
use crate::load::error::with_causes;
use crate::load::histogram::Histogram;
use crate::load::run_state::{LAST_ANSWERS, RunState};
use crate::load::target::json_request;
use crate::load::watch::checker::ObjectWrites;

const PATCH: &str = "application/merge-patch+json";
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a writer tries again to enter a full window.
const WINDOW_PAUSE: Duration = Duration::from_millis(1);
/// The time after the end of the schedule within which late writes are still sent and answered.
const LATE: Duration = Duration::from_secs(10);
/// The maximum size of the response to a write, in bytes.
const ANSWER_LIMIT: usize = 16 << 20;

/// Everything that the writers need: the objects, the schedule and the server.
#[derive(Clone)]
pub(crate) struct WriteJob {
    pub(crate) run_state: Arc<RunState>,
    pub(crate) client: Client,
    pub(crate) objects: Objects,
    /// The URL path of the collection that holds the objects.
    pub(crate) path: String,
    pub(crate) schedule: Schedule,
    /// The number of writes of each writer before this job; empty if there are none.
    pub(crate) sent_before: Vec<u32>,
}

/// The results of the writers.
#[derive(Debug, Default)]
pub(crate) struct WriteStats {
    /// The acknowledged writes of each object, by object number.
    pub(crate) by_object: Vec<ObjectWrites>,
    pub(crate) acknowledged: u64,
    /// The number of requests that failed and were sent again.
    pub(crate) retries: u64,
    /// The number of scheduled writes that were never acknowledged.
    pub(crate) given_up: u64,
    /// Latencies from the time when a write was sent until it was acknowledged.
    pub(crate) latency: Histogram,
    /// Delays from the time when a write was due until a writer began to send it.
    pub(crate) lateness: Histogram,
    /// The time of the last acknowledgement, in nanoseconds since the start of the writing phase.
    pub(crate) last_acknowledged: u64,
    /// The number of acknowledged writes of each writer, those before its job included.
    pub(crate) sent: Vec<u32>,
}

/// Runs the schedule to its end, from `start` on, a time of the run's clock in nanoseconds. Returns
/// when the last write is acknowledged or given up.
pub(crate) async fn write(job: WriteJob, start: u64, shutdown: &Shutdown) -> WriteStats {
    let writers = job.schedule.writers();
    let job = Arc::new(job);
    let tickets: Arc<Vec<Semaphore>> = Arc::new((0..writers).map(|_| Semaphore::new(0)).collect());
    let metronome = {
        let (job, tickets) = (Arc::clone(&job), Arc::clone(&tickets));
        tokio::task::spawn_blocking(move || issue_tickets(&job, &tickets, start))
    };
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (job, tickets) = (Arc::clone(&job), Arc::clone(&tickets));
            shutdown.spawn(async move {
                let tickets = &tickets[writer as usize];
                job.write_all(writer, tickets, start).await
            })
        })
        .collect();
    let mut stats = WriteStats {
        by_object: vec![ObjectWrites::default(); job.run_state.config.objects as usize],
        ..WriteStats::default()
    };
    for task in tasks {
        match task.await {
            Ok(part) => stats.add(part),
            Err(error) => job.run_state.fail(format!("a writer ended early: {error}")),
        }
    }
    if let Err(error) = metronome.await {
        job.run_state
            .fail(format!("the schedule ended early: {error}"));
    }
    stats
}

/// Gives each writer a ticket when its next write is due. Runs on a separate thread and sleeps
/// there, because a runtime's timers are precise only to a millisecond.
fn issue_tickets(job: &WriteJob, tickets: &[Semaphore], start: u64) {
    let schedule = &job.schedule;
    for number in schedule.numbers().unwrap_or_default() {
        let due = start + schedule.due(number).map_or(0, nanoseconds);
        loop {
            let left = due.saturating_sub(job.run_state.clock.now());
            if left == 0 || job.run_state.is_writing_over() {
                break;
            }
            // The sleep is limited, so that the thread soon notices when the writers must stop.
            std::thread::sleep(Duration::from_nanos(left).min(Duration::from_millis(100)));
        }
        if job.run_state.is_writing_over() {
            tickets.iter().for_each(Semaphore::close);
            return;
        }
        // The cast is safe: the remainder is less than the number of writers.
        tickets[(number % tickets.len() as u64) as usize].add_permits(1);
    }
}

impl WriteJob {
    /// Waits until write `number` is due. Returns false if it never will be.
    async fn wait_until_due(&self, number: u64, tickets: &Semaphore, start: u64) -> bool {
        match self.schedule.numbers() {
            None => {
                let end = start + nanoseconds(self.schedule.duration);
                while !self.run_state.try_enter_window() {
                    if self.run_state.clock.now() >= end || self.run_state.is_writing_over() {
                        return false;
                    }
                    sleep(WINDOW_PAUSE).await;
                }
                self.run_state.clock.now() < end
            }
            Some(numbers) if !numbers.contains(&number) => false,
            // The semaphore is closed if the writers must stop.
            Some(_) => tickets.acquire().await.is_ok_and(|ticket| {
                ticket.forget();
                true
            }),
        }
    }

    async fn write_all(&self, writer: u32, tickets: &Semaphore, start: u64) -> WriterStats {
        let mut part = WriterStats {
            stats: WriteStats::default(),
            objects: HashMap::new(),
            sent: self.sent_before.get(writer as usize).copied().unwrap_or(0),
        };
        let deadline = self.run_state.clock.at(start) + self.schedule.duration + LATE;
        loop {
            let write = self.schedule.write(writer, part.sent);
            if self.run_state.is_writing_over()
                || !self.wait_until_due(write.number, tickets, start).await
                || self.run_state.is_writing_over()
            {
                break;
            }
            if Instant::now() > deadline {
                part.stats.given_up += self.schedule.remaining_from(write.number);
                break;
            }
            let now = self.run_state.clock.now();
            let due = self.schedule.due(write.number);
            let scheduled = due.map_or(now, |due| start + nanoseconds(due));
            part.stats.lateness.record(now.saturating_sub(scheduled));
            let is_written = self
                .write_one(write, scheduled, deadline, &mut part.stats)
                .await;
            let object_writes = part.objects.entry(write.object as usize).or_default();
            if !is_written {
                object_writes.has_unknown_outcome = true;
                // After a signal, only this write is given up: the later ones were not due yet.
                part.stats.given_up += if self.run_state.is_writing_over() {
                    1
                } else {
                    self.schedule.remaining_from(write.number)
                };
                break;
            }
            object_writes.acknowledged = write.sequence;
            part.sent += 1;
            part.stats.last_acknowledged = self.run_state.clock.now().saturating_sub(start);
        }
        part
    }

    /// Sends a write until it is acknowledged. A retry has the same content, so that the write
    /// changes the object at most once. Returns false if the write was given up; its outcome is
    /// then unknown.
    async fn write_one(
        &self,
        write: ScheduledWrite,
        scheduled: u64,
        deadline: Instant,
        stats: &mut WriteStats,
    ) -> bool {
        let marker = Marker {
            object: write.object,
            sequence: write.sequence,
            // The low 32 bits are enough to distinguish the writes of several hours.
            number: write.number as u32,
            scheduled,
        };
        let path = format!("{}/{}", self.path, self.objects.name(write.object));
        let body = self.objects.patch(marker);
        let clock = self.run_state.clock;
        let mut pause = FIRST_PAUSE;
        loop {
            let sent = clock.now();
            let answer = tokio::select! {
                answer = self.send(&path, body.clone()) => answer,
                () = self.answer_overdue(deadline) => return false,
            };
            let error = match answer {
                Ok(()) => {
                    let now = clock.now();
                    self.run_state.acknowledgements.set(marker.number, now);
                    stats.latency.record(now - sent);
                    stats.acknowledged += 1;
                    return true;
                }
                Err(error) => error,
            };
            if is_final(&error) {
                self.run_state
                    .fail(format!("a write was refused: {}", with_causes(&error)));
                return false;
            }
            let wait = error.retry_after().unwrap_or(pause);
            if self.run_state.is_writing_over() || Instant::now() + wait > deadline {
                tracing::debug!(%error, "a write is given up");
                return false;
            }
            stats.retries += 1;
            sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Completes when a pending write must be given up: at the deadline, or some seconds after the
    /// writers had to stop.
    async fn answer_overdue(&self, deadline: Instant) {
        let after_signal = async {
            self.run_state.writing_over().await;
            sleep(LAST_ANSWERS).await;
        };
        tokio::select! {
            () = after_signal => {}
            () = sleep_until(deadline) => {}
        }
    }

    async fn send(&self, path: &str, body: String) -> Result<(), Error> {
        let request = json_request(Method::PATCH, path, PATCH, body)?;
        let answer = self
            .client
            .request_success(Identity::Kubefan, request)
            .await?;
        collect(answer.into_body(), ANSWER_LIMIT).await.map(drop)
    }
}

/// Returns true if a retry would be refused too.
fn is_final(error: &Error) -> bool {
    error.status().is_some_and(|status| {
        (400..500).contains(&status.code) && !matches!(status.code, 408 | 409 | 429)
    })
}

/// The results of one writer.
struct WriterStats {
    stats: WriteStats,
    objects: HashMap<usize, ObjectWrites>,
    /// The number of acknowledged writes, those before the job included.
    sent: u32,
}

impl WriteStats {
    fn add(&mut self, part: WriterStats) {
        for (object, object_writes) in part.objects {
            self.by_object[object] = object_writes;
        }
        self.sent.push(part.sent);
        let more = part.stats;
        self.acknowledged += more.acknowledged;
        self.retries += more.retries;
        self.given_up += more.given_up;
        self.latency.add(&more.latency);
        self.lateness.add(&more.lateness);
        self.last_acknowledged = self.last_acknowledged.max(more.last_acknowledged);
    }
}
