//! A log of lines of JSON. A separate thread writes the lines to a file, or to standard output.
//!
//! Callers that add lines never wait for the file. If the file is too slow, lines are dropped and
//! counted.

mod file;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use std::{io, thread};

use file::LogFile;
use kubefan_core::telemetry::{Registry, visible_json};
use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The number of lines that may wait for the file.
const QUEUE: usize = 10_000;
/// The bytes of lines that may wait for the file, or are being written. Lines have usually less than
/// 1 KiB, but clients can make longer ones.
const QUEUE_BYTES: usize = 16 << 20;
/// How long the end of the process waits until the lines are written.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// A log of lines. Dropping it ends its thread when all lines are written.
pub(crate) struct LineLog {
    kind: LogKind,
    lines: SyncSender<Message>,
    /// The bytes of the lines that are not written yet.
    waiting: Arc<AtomicUsize>,
    written: Mutex<Option<oneshot::Receiver<()>>>,
    metrics: LineMetrics,
}

/// What the lines of a log are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// Audit events of what kubefan answers itself.
    Audit,
    /// A line for each request.
    Access,
}

enum Message {
    Line(String),
    /// No line after this one is written.
    End,
}

/// Counts the lines that were written, and the lines that were lost.
#[derive(Clone)]
struct LineMetrics {
    written: IntCounter,
    dropped: IntCounter,
    failed: IntCounter,
}

impl LineLog {
    /// Opens the file at `path`, or standard output if `path` is `-`, and starts the thread that
    /// writes to it. An existing file is continued. Only its owner can read a new file.
    ///
    /// If the file is renamed or deleted, a new one is created within a second.
    ///
    /// # Errors
    /// If the file cannot be opened or the thread cannot be started.
    pub(crate) fn open(kind: LogKind, path: &Path, registry: &Registry) -> io::Result<Self> {
        let mut file = LogFile::open(path)?;
        let metrics = LineMetrics::new(kind, registry);
        let (lines, queue) = sync_channel(QUEUE);
        let (done, written) = oneshot::channel();
        let counted = metrics.clone();
        let waiting = Arc::new(AtomicUsize::new(0));
        let unwritten = Arc::clone(&waiting);
        thread::Builder::new()
            .name(kind.name().replace(' ', "-"))
            .spawn(move || {
                // The channel ends with the last sender.
                while let Ok(Message::Line(line)) = queue.recv() {
                    let mut lines = vec![line];
                    let mut is_over = false;
                    // Lines that are already waiting are written together.
                    while lines.len() < QUEUE && !is_over {
                        match queue.try_recv() {
                            Ok(Message::Line(line)) => lines.push(line),
                            Ok(Message::End) => is_over = true,
                            Err(_) => break,
                        }
                    }
                    let text = lines.concat();
                    match file.write(&visible_json(&text)) {
                        Ok(()) => counted.written.inc_by(lines.len() as u64),
                        Err(error) => {
                            counted.failed.inc_by(lines.len() as u64);
                            file.report(kind.name(), &error);
                        }
                    }
                    unwritten.fetch_sub(text.len(), Relaxed);
                    if is_over {
                        break;
                    }
                }
                // Fails if nothing waits for the end.
                done.send(()).ok();
            })?;
        Ok(Self {
            kind,
            lines,
            waiting,
            written: Mutex::new(Some(written)),
            metrics,
        })
    }

    /// Appends `line`, JSON that ends with a newline. What a terminal would obey is written escaped.
    /// Never waits: if too many lines or bytes wait, `line` is dropped.
    pub(crate) fn append(&self, line: String) {
        let length = line.len();
        let waiting = self.waiting.fetch_add(length, Relaxed) + length;
        if waiting > QUEUE_BYTES || self.lines.try_send(Message::Line(line)).is_err() {
            self.waiting.fetch_sub(length, Relaxed);
            self.metrics.dropped.inc();
        }
    }

    /// Waits until all lines so far are written, at most two seconds. Later lines are dropped.
    pub(crate) async fn finish(&self) {
        let Some(written) = self.written.lock().take() else {
            return;
        };
        let end = async {
            while let Err(TrySendError::Full(_)) = self.lines.try_send(Message::End) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // The sender is dropped only when the thread ends.
            written.await.ok();
        };
        if timeout(FINISH_TIMEOUT, end).await.is_err() {
            let log = self.kind.name();
            tracing::warn!(log, "a log is too slow; its last lines are lost");
        }
    }
}

impl LogKind {
    fn name(self) -> &'static str {
        match self {
            Self::Audit => "audit log",
            Self::Access => "access log",
        }
    }
}

impl LineMetrics {
    fn new(kind: LogKind, registry: &Registry) -> Self {
        let (name, help) = match kind {
            LogKind::Audit => (
                "kubefan_audit_events_total",
                "Events for the audit log, by what became of them: written, dropped because the \
                 log was too slow, or failed because it could not be written.",
            ),
            LogKind::Access => (
                "kubefan_access_log_lines_total",
                "Lines for the access log, by what became of them: written, dropped because the \
                 log was too slow, or failed because it could not be written.",
            ),
        };
        let lines = registry.counter_vec(name, help, &["result"]);
        let lines = |result| lines.with_label_values(&[result]);
        Self {
            written: lines("written"),
            dropped: lines("dropped"),
            failed: lines("failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn lines_are_appended_in_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.log");
        for round in 0..2 {
            let log = LineLog::open(LogKind::Audit, &path, &Registry::new()).expect("opened");
            for number in 0..1000 {
                log.append(format!("{}\n", round * 1000 + number));
            }
            log.finish().await;
            assert_eq!(log.metrics.written.get(), 1000);
            assert_eq!(log.waiting.load(Relaxed), 0);
        }
        let found = fs::read_to_string(&path).expect("text");
        let expected: String = (0..2000).map(|number| format!("{number}\n")).collect();
        assert!(found == expected, "{found}");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn what_a_terminal_would_obey_is_written_escaped() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        let log = LineLog::open(LogKind::Access, &path, &Registry::new()).expect("opened");
        log.append("{\"user\":\"\u{e4}\u{9b}31m\u{202e}\"}\n".to_owned());
        log.append("{}\n".to_owned());
        log.finish().await;
        assert_eq!(log.waiting.load(Relaxed), 0);
        let found = fs::read_to_string(&path).expect("text");
        assert_eq!(found, "{\"user\":\"\u{e4}\\u009b31m\\u202e\"}\n{}\n");
    }

    #[tokio::test]
    async fn a_full_queue_drops_lines_and_counts_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("mkfifo runs").success());
        // Opened for reading too, so that opening it for writing does not wait.
        let reader = fs::OpenOptions::new().read(true).write(true).open(&fifo);
        let reader = reader.expect("opened");
        // The pipe has room for 64 KiB; then the thread waits, and does not take lines. It may have
        // taken as many lines as the queue has room for.
        for (length, count, most) in [(512, 3 * QUEUE, 2 * QUEUE + 200), (1 << 20, 100, 16)] {
            let log = LineLog::open(LogKind::Access, &fifo, &Registry::new()).expect("opened");
            let line = format!("{}\n", "x".repeat(length - 1));
            for _ in 0..count {
                log.append(line.clone());
            }
            let dropped = log.metrics.dropped.get() as usize;
            assert!(dropped >= count - most, "{length}: {dropped}");
        }
        drop(reader);
    }
}
