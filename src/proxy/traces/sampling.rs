//! Which requests are recorded.
//!
//! A client can only lower the rate: a request whose client does not record its own span is not
//! recorded. All others are recorded at kubefan's rate. The choice does not depend on the id of the
//! trace, because a client could choose ids that are always recorded.

/// The share of the requests that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Of 2³² numbers, those below are recorded.
    below: u64,
}

impl Rate {
    /// The number of requests in a rate.
    pub const REQUESTS: u32 = 1_000_000;

    /// Returns the rate at which `count` of a million requests are recorded on average.
    pub fn per_million(count: u32) -> Self {
        let count = u64::from(count.min(Self::REQUESTS));
        Self {
            below: (count << 32) / u64::from(Self::REQUESTS),
        }
    }

    /// Returns true if a request is recorded that has drawn `number` at random.
    pub(super) fn selects(self, number: u32) -> bool {
        u64::from(number) < self.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_share_of_numbers() {
        const LAST: u64 = u32::MAX as u64;
        for (count, first_left_out) in [
            (0, 0),
            (1, 4_294),
            (10_000, 42_949_672),
            (500_000, 1 << 31),
            (1_000_000, LAST + 1),
            (u32::MAX, LAST + 1),
        ] {
            let rate = Rate::per_million(count);
            for number in [0, 1, 4_293, 4_294, 42_949_671, 42_949_672, 1 << 31, LAST] {
                let drawn = u32::try_from(number).expect("32 bits");
                let expected = number < first_left_out;
                assert_eq!(rate.selects(drawn), expected, "{count} {number}");
            }
        }
    }
}
