//! The number of connections that fit under the system's limit of open files.

use std::fs;
use std::num::NonZeroUsize;

use tracing::warn;

use crate::net::Config;

/// Files that are left for everything but clients' connections: the upstream watches of caches and
/// bridges, other connections to the API server, and the admin listener.
const RESERVED: usize = 320;

/// Returns the number of files that this process may have open; `None` if there is no limit, or if
/// the system does not report it.
pub fn open_files_limit() -> Option<usize> {
    parse(&fs::read_to_string("/proc/self/limits").ok()?)
}

/// Finds the soft limit in the text of `/proc/PID/limits` (proc_pid_limits(5)).
fn parse(limits: &str) -> Option<usize> {
    let mut lines = limits.lines();
    let values = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    values.split_whitespace().next()?.parse().ok()
}

impl Config {
    /// Returns this configuration with fewer connections, if `open_files` files are too few for the
    /// configured number. Otherwise each attempt to accept a connection would fail, and so would
    /// connections to the API server.
    ///
    /// At most half of the connections may be pending. Otherwise pending connections could take all
    /// slots. Then no connection would be accepted any more, and the oldest pending one would not
    /// be closed in favour of a new one.
    pub fn within_open_files(self, open_files: Option<usize>) -> Config {
        let at_least_one = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        let fitting = open_files.map(|files| files.saturating_sub(RESERVED).max(files / 2));
        let fitting = fitting.map_or(NonZeroUsize::MAX, at_least_one);
        if fitting < self.max_connections {
            warn!(
                open_files,
                max_connections = fitting,
                configured = self.max_connections,
                "the limit of open files (ulimit -n) allows fewer connections than configured"
            );
        }
        let max_connections = self.max_connections.min(fitting);
        let half = at_least_one(max_connections.get() / 2);
        Config {
            max_connections,
            max_pending_openings: self.max_pending_openings.min(half),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_others_and_slots_for_open_ones() {
        for (open_files, connections, pending, expected) in [
            (None, 16_384, 1_024, (16_384, 1_024)),
            (Some(1 << 20), 16_384, 1_024, (16_384, 1_024)),
            (Some(16_704), 16_384, 1_024, (16_384, 1_024)),
            // The usual limit of a service of systemd.
            (Some(1_024), 16_384, 1_024, (704, 352)),
            (Some(1_024), 100, 1_024, (100, 50)),
            (Some(400), 16_384, 1_024, (200, 100)),
            (Some(1), 16_384, 1_024, (1, 1)),
            (None, 1, 1_024, (1, 1)),
        ] {
            let nonzero = |count| NonZeroUsize::new(count).expect("not zero");
            let config = Config {
                max_connections: nonzero(connections),
                max_pending_openings: nonzero(pending),
                ..Config::default()
            };
            let found = config.within_open_files(open_files);
            let found = (found.max_connections, found.max_pending_openings);
            let expected = (nonzero(expected.0), nonzero(expected.1));
            assert_eq!(found, expected, "{open_files:?} {connections} {pending}");
        }
    }

    #[test]
    fn the_soft_limit_is_found() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             63704                63704                processes \n\
                    Max open files            1024                 524288               files     \n";
        assert_eq!(parse(text), Some(1_024));
        let unlimited = text.replace("1024  ", "unlimited");
        assert_eq!(parse(&unlimited), None);
        assert_eq!(parse(""), None);
        assert!(open_files_limit().is_some_and(|limit| limit > 0));
    }
}
