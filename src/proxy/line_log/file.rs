//! The file of a log. It is opened again when it was renamed.

use std::fs::{File, OpenOptions, metadata};
use std::io;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

/// Permissions of a new file: lines name users and objects.
const MODE: u32 = 0o600;
/// How often the open file is compared with the file at its path.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often failures are logged.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The file of a log.
pub(super) struct LogFile {
    path: PathBuf,
    /// The open file; `None` for standard output.
    file: Option<File>,
    checked: Instant,
    reported: Option<Instant>,
}

impl LogFile {
    /// Opens the file at `path` to append to it; standard output if the path is `-`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let is_stdout = path.as_os_str() == "-";
        let file = (!is_stdout).then(|| append_to(path)).transpose()?;
        Ok(Self {
            path: path.to_owned(),
            file,
            checked: Instant::now(),
            reported: None,
        })
    }

    /// Writes complete lines.
    pub(super) fn write(&mut self, lines: &str) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            let mut out = io::stdout().lock();
            out.write_all(lines.as_bytes())?;
            return out.flush();
        };
        if self.checked.elapsed() >= CHECK_INTERVAL {
            self.checked = Instant::now();
            if !is_at(file, &self.path)? {
                *file = append_to(&self.path)?;
            }
        }
        file.write_all(lines.as_bytes())
    }

    /// Logs a failure of the `log` with this name, at most once a minute.
    pub(super) fn report(&mut self, log: &str, error: &io::Error) {
        let is_recent = |at: Instant| at.elapsed() < REPORT_INTERVAL;
        if self.reported.is_some_and(is_recent) {
            return;
        }
        self.reported = Some(Instant::now());
        tracing::warn!(%error, log, "cannot write a log");
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE).open(path)
}

/// Returns true if `path` still names `file`. A program that rotates logs may have renamed the
/// file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    Ok(metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_renamed_file_is_replaced_by_a_new_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
        let mut file = LogFile::open(&path).expect("opened");
        file.write("one\n").expect("written");
        fs::rename(&path, &old).expect("renamed");
        file.write("two\n").expect("written");
        advance(CHECK_INTERVAL).await;
        file.write("three\n").expect("written");
        let read = |path| fs::read_to_string(path).expect("text");
        assert_eq!(
            (read(&old).as_str(), read(&path).as_str()),
            ("one\ntwo\n", "three\n")
        );
        fs::remove_file(&path).expect("removed");
        advance(CHECK_INTERVAL).await;
        file.write("four\n").expect("written");
        assert_eq!(read(&path), "four\n");
    }
}
