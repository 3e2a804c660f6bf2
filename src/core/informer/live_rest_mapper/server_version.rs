//! The version and the clock of the API server, as polls have shown them.

use std::sync::Arc;

use super::LiveRestMapper;
use super::upgrade::Poll;
use crate::codec::Clock;
use crate::upstream::PolledVersion;

impl LiveRestMapper {
    /// Returns the API server's version, such as `v1.37.1`. Returns `None` before the first poll,
    /// and while servers of several versions answer in turn. After such a time, a version is
    /// returned again when several consecutive polls have shown it; there is one poll a minute.
    pub fn server_version(&self) -> Option<Arc<String>> {
        self.server_version.load_full()
    }

    /// Returns the minor version of the API server, such as 37 of `v1.37.1`. While servers of
    /// several versions answer in turn, this is the least one. Returns `None` before the first
    /// poll, and for a major version other than 1.
    pub fn server_minor(&self) -> Option<u32> {
        self.server_minor.load().as_deref().copied()
    }

    /// Returns the API server's clock, as polls have shown it. Before the first poll, this is this
    /// machine's clock.
    pub fn server_clock(&self) -> Clock {
        self.server_clock.clone()
    }

    /// Records that `poll` has returned `polled`.
    pub(super) fn polled_version(&self, polled: &PolledVersion, poll: Poll) {
        let differs = |ahead| self.server_clock.observe(ahead);
        match polled.clock_ahead.as_ref().and_then(differs) {
            None => {}
            Some(0) => tracing::info!("the API server's clock does not differ any more"),
            Some(ahead_ms) => tracing::warn!(
                ahead_ms,
                "the API server's clock differs from this machine's: ages in Tables are by the API \
                 server's"
            ),
        }
        let version = polled.version.as_str();
        let minor = Self::minor_of(version);
        let counting = {
            let mut seen = self.seen_versions.lock();
            match poll {
                Poll::Regular => seen.polled(version, minor),
                Poll::Reconnected => match seen.polled_early(version, minor) {
                    Some(counting) => counting,
                    None => return,
                },
            }
        };
        let before = self.server_version.load();
        if before.as_deref() != counting.settled.as_ref() {
            match &counting.settled {
                Some(version) => tracing::debug!(version, "the API server's version"),
                None => tracing::info!(
                    version,
                    "the API server's version has changed, or differs between its replicas: Tables \
                     are forwarded until it is the same for some minutes"
                ),
            }
            self.server_version.store(counting.settled.map(Arc::new));
        }
        self.server_minor.store(counting.lowest_minor.map(Arc::new));
    }

    /// Returns the minor version of `server_version`, such as 37 of `v1.37.1-eks-1234`, or `None`
    /// if the major version is not 1.
    #[doc(hidden)]
    pub fn minor_of(server_version: &str) -> Option<u32> {
        let minor = server_version.strip_prefix("v1.")?;
        let end = minor.find(|digit: char| !digit.is_ascii_digit());
        minor[..end.unwrap_or(minor.len())].parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minor_version_is_the_second_number() {
        for (version, expected) in [
            ("v1.37.0", Some(37)),
            ("v1.37.3-eks-1234", Some(37)),
            ("v1.37+", Some(37)),
            ("v1.100", Some(100)),
            ("v1.", None),
            ("v2.37.0", None),
            ("1.37.0", None),
            ("", None),
        ] {
            assert_eq!(LiveRestMapper::minor_of(version), expected, "{version}");
        }
    }
}
