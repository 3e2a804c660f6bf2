//! Files that are read again when they change, such as renewed certificates.
//!
//! kubefan compares the contents of the files, not their times: Kubernetes replaces the files of a
//! mounted Secret or ConfigMap by changing a symbolic link.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use kubefan_core::shutdown::Shutdown;
use tokio::fs;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// How often the files are read. Kubernetes itself takes about a minute to update a mount.
const INTERVAL: Duration = Duration::from_secs(10);

/// Some files that belong together, and what they contained when they were last read.
#[derive(Debug)]
pub struct WatchedFiles {
    files: Vec<(PathBuf, Vec<u8>)>,
    /// The last error of reading. It is stored so that each error is logged once.
    failure: Option<String>,
}

impl WatchedFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// If one of them can't be read.
    pub async fn read(paths: Vec<PathBuf>) -> anyhow::Result<WatchedFiles> {
        let contents = contents(paths.iter()).await?;
        Ok(WatchedFiles {
            files: paths.into_iter().zip(contents).collect(),
            failure: None,
        })
    }

    /// Returns what the files contained when they were last read, in the order of the paths.
    pub fn contents(&self) -> impl Iterator<Item = &[u8]> {
        self.files.iter().map(|(_, content)| &**content)
    }

    /// Reads the files every 10 seconds in a background task, and calls `apply` when a file has
    /// changed. An error of `apply` is logged once, and `apply` is called again after the next
    /// change.
    pub fn watch<E: Into<Box<dyn Error + Send + Sync>>>(
        mut self,
        shutdown: &Shutdown,
        mut apply: impl FnMut(&WatchedFiles) -> Result<(), E> + Send + 'static,
    ) -> JoinHandle<()> {
        shutdown.spawn_background(async move {
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                if self.refresh().await {
                    self.log(apply(&self).map_err(Into::into));
                }
            }
        })
    }

    /// Reads the files again. Returns true if a file has changed.
    async fn refresh(&mut self) -> bool {
        let read = contents(self.files.iter().map(|(path, _)| path)).await;
        let contents = match read {
            Ok(contents) => contents,
            Err(error) => {
                let text = format!("{error:#}");
                if self.failure.as_ref() != Some(&text) {
                    warn!(error = %text, "files can't be read again; the old ones stay in use");
                }
                self.failure = Some(text);
                return false;
            }
        };
        self.failure = None;
        let mut is_changed = false;
        for ((_, old), new) in self.files.iter_mut().zip(contents) {
            is_changed |= *old != new;
            *old = new;
        }
        is_changed
    }

    fn log(&self, applied: Result<(), Box<dyn Error + Send + Sync>>) {
        let files: Vec<_> = self.files.iter().map(|(path, _)| path).collect();
        match applied {
            Ok(()) => info!(?files, "changed files are in use"),
            Err(error) => {
                let cause = error.source().map(ToString::to_string);
                warn!(?files, %error, cause, "changed files can't be used; the old ones stay in use");
            }
        }
    }
}

async fn contents(paths: impl Iterator<Item = &PathBuf>) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut contents = Vec::new();
    for path in paths {
        let read = fs::read(path).await;
        contents.push(read.with_context(|| format!("cannot read {}", path.display()))?);
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use kubefan_core::shutdown::Config;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;

    type Applied = mpsc::UnboundedReceiver<Vec<String>>;

    /// Watches `tls.crt` and `tls.key` in `directory`, and refuses contents with `bad`.
    async fn watch(directory: &Path, shutdown: &Shutdown) -> Applied {
        let paths = ["tls.crt", "tls.key"].map(|name| directory.join(name));
        let files = WatchedFiles::read(paths.into()).await.unwrap();
        let (applied, receiver) = mpsc::unbounded_channel();
        files.watch(shutdown, move |files| {
            let contents = files.contents().map(|bytes| str::from_utf8(bytes).unwrap());
            let contents: Vec<_> = contents.map(str::to_owned).collect();
            let is_bad = contents.concat().contains("bad");
            applied.send(contents).unwrap();
            if is_bad { Err("bad content") } else { Ok(()) }
        });
        receiver
    }

    fn write(directory: &Path, contents: [&str; 2]) {
        for (name, content) in ["tls.crt", "tls.key"].iter().zip(contents) {
            std::fs::write(directory.join(name), content).unwrap();
        }
    }

    /// Lets time pass, and checks that nothing is applied.
    async fn nothing_for(applied: &mut Applied, time: Duration) {
        let received = tokio::time::timeout(time, applied.recv()).await;
        assert!(received.is_err(), "{received:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_applied_once_and_bad_ones_are_not_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let shutdown = Shutdown::new(Config::default());
        write(directory, ["a", "b"]);
        let mut applied = watch(directory, &shutdown).await;
        nothing_for(&mut applied, INTERVAL * 3).await;
        for contents in [["a", "c"], ["a", "bad"], ["a", "c"], ["d", "c"]] {
            write(directory, contents);
            let changed = Instant::now();
            assert_eq!(applied.recv().await.unwrap(), contents);
            assert!(changed.elapsed() <= INTERVAL);
            nothing_for(&mut applied, INTERVAL * 3).await;
        }
        std::fs::remove_file(directory.join("tls.key")).unwrap();
        nothing_for(&mut applied, INTERVAL * 3).await;
        write(directory, ["d", "e"]);
        assert_eq!(applied.recv().await.unwrap(), ["d", "e"]);
        shutdown.drain().await;
        assert_eq!(applied.recv().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_symbolic_link_to_other_files_is_a_change() {
        let mount = tempfile::tempdir().unwrap();
        let shutdown = Shutdown::new(Config::default());
        let data = mount.path().join("..data");
        for (version, contents) in [("1", ["a", "b"]), ("2", ["c", "d"])] {
            std::fs::create_dir(mount.path().join(version)).unwrap();
            write(&mount.path().join(version), contents);
        }
        symlink("1", &data).unwrap();
        let mut applied = watch(&data, &shutdown).await;
        let unfinished = mount.path().join("..data_tmp");
        symlink("2", &unfinished).unwrap();
        std::fs::rename(&unfinished, &data).unwrap();
        assert_eq!(applied.recv().await.unwrap(), ["c", "d"]);
        shutdown.drain().await;
    }

    #[tokio::test]
    async fn a_missing_file_is_named() {
        let missing = PathBuf::from("/nowhere/ca.crt");
        let error = WatchedFiles::read(vec![missing]).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nowhere/ca.crt");
    }
}
