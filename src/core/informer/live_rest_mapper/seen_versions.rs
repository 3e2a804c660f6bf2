//! Which version of the API server counts when polls return different ones.

/// A version counts after this number of further polls in sequence that returned it.
const SETTLED_POLLS: u32 = 3;
/// Upper limit of the number of polls that are needed. This number doubles whenever a version that
/// counted is soon followed by another one: behind a load balancer, servers of two versions may
/// answer in turn for hours.
const MAX_SETTLED_POLLS: u32 = 48;
/// A version that was returned by this number of polls in sequence is followed by an upgrade, not
/// by a turn of another server.
const STABLE_POLLS: u32 = 60;

/// The versions that polls have returned.
#[derive(Debug, Default)]
pub(super) struct SeenVersions {
    /// The version that the last poll returned; `None` before the first poll.
    last: Option<String>,
    /// The number of polls in sequence that have returned `last`, without the first of them.
    repeated: u32,
    /// `last` counts when `repeated` has reached this number.
    needed: u32,
    /// The least minor version since a version counted.
    lowest_minor: Option<u32>,
}

/// The version of the API server, as polls have shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CountingVersion {
    /// The version of all servers; `None` if several versions were seen, or if none was seen.
    pub(super) settled: Option<String>,
    /// The least minor version of the servers, such as 36 of 1.36; `None` if one of them has no
    /// minor version.
    pub(super) lowest_minor: Option<u32>,
}

impl SeenVersions {
    /// Records that a poll has returned `version` with the minor version `minor`. Returns the
    /// version that counts from now on.
    pub(super) fn polled(&mut self, version: &str, minor: Option<u32>) -> CountingVersion {
        match &self.last {
            None => self.lowest_minor = minor,
            Some(last) if last == version => self.repeated = self.repeated.saturating_add(1),
            Some(_) => {
                if self.repeated >= STABLE_POLLS || self.needed == 0 {
                    self.needed = SETTLED_POLLS;
                } else if self.is_settled() {
                    self.needed = (self.needed * 2).min(MAX_SETTLED_POLLS);
                }
                self.repeated = 0;
            }
        }
        self.last = Some(version.to_owned());
        self.lowest_minor = if self.is_settled() {
            minor
        } else {
            // `None` is less than any number.
            self.lowest_minor.min(minor)
        };
        CountingVersion {
            settled: self.last.clone().filter(|_| self.is_settled()),
            lowest_minor: self.lowest_minor,
        }
    }

    /// Does what [`SeenVersions::polled`] does, for a poll that came before its minute. Such a poll
    /// counts only if it returned another version; otherwise returns `None`.
    pub(super) fn polled_early(
        &mut self,
        version: &str,
        minor: Option<u32>,
    ) -> Option<CountingVersion> {
        let is_other = self.last.as_deref() != Some(version);
        is_other.then(|| self.polled(version, minor))
    }

    /// Returns true if the last version counts. The first version that is polled counts at once.
    fn is_settled(&self) -> bool {
        self.repeated >= self.needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what counts after each poll: a letter if it is the only version, else a dot.
    fn settled(polls: &str) -> String {
        let mut seen = SeenVersions::default();
        let counting = polls.chars().map(|version| {
            let counting = seen.polled(&version.to_string(), Some(37));
            counting.settled.map_or('.', |_| version)
        });
        counting.collect()
    }

    #[test]
    fn a_version_counts_when_no_other_one_was_seen_for_some_polls() {
        for (polls, expected) in [
            ("AAAA", "AAAA"),
            ("AABBBBBB", "AA...BBB"),
            // Two servers answer by turns.
            ("ABABABABAB", "A........."),
            ("AABBAABBAABB", "AA.........."),
            // The version of one server alone comes long enough in sequence, once.
            ("ABBBBABBBBABBBBBBB", "A...B............B"),
            // One poll that another server answered.
            ("AAABAAAAA", "AAA....AA"),
        ] {
            assert_eq!(settled(polls), expected, "{polls}");
        }
    }

    #[test]
    fn an_early_poll_shows_another_version_but_not_that_it_lasts() {
        let mut seen = SeenVersions::default();
        let minor = Some(37);
        let settled = seen.polled("A", minor).settled;
        assert_eq!(settled.as_deref(), Some("A"));
        assert_eq!(seen.polled_early("A", minor), None);
        let early = seen
            .polled_early("B", minor)
            .map(|counting| counting.settled);
        assert_eq!(early, Some(None));
        for _ in 0..10 {
            assert_eq!(seen.polled_early("B", minor), None);
        }
        let regular = ["B", "B", "B"].map(|version| seen.polled(version, minor).settled);
        assert_eq!(regular, [None, None, Some("B".to_owned())]);
    }

    #[test]
    fn servers_that_answer_by_turns_at_random_seldom_seem_to_be_one() {
        // A linear congruential generator; its high bits are random enough.
        let mut state = 7_u32;
        let polls: String = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b"AB"[(state >> 31) as usize])
        })
        .take(10_000)
        .collect();
        let during = settled(&polls);
        let counted = during[1..].matches(['A', 'B']).count();
        assert!(counted < 50, "{counted} of 10000 polls");
        // When the upgrade is over, the new version counts within an hour, and the next upgrade
        // takes no longer than the first one.
        let after = format!("{polls}{}{}", "C".repeat(120), "D".repeat(5));
        let settled = settled(&after);
        let position = settled.find('C').expect("it counts");
        assert!(position - polls.len() <= MAX_SETTLED_POLLS as usize);
        assert_eq!(&settled[after.len() - 5..], "...DD");
    }

    #[test]
    fn the_least_minor_version_counts_until_one_has_settled() {
        let mut seen = SeenVersions::default();
        let mut polled = |minor: u32| {
            let version = format!("v1.{minor}.0");
            seen.polled(&version, Some(minor)).lowest_minor
        };
        assert_eq!(polled(36), Some(36));
        for minor in [37, 36, 37, 37, 37] {
            assert_eq!(polled(minor), Some(36), "{minor}");
        }
        assert_eq!(polled(37), Some(37));
        assert_eq!(polled(36), Some(36));
        let unknown = seen.polled("v2.0.0", None);
        assert_eq!(unknown, CountingVersion::default());
    }
}
