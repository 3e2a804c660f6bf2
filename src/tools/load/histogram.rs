//! Histograms of latencies. Their log-linear buckets preserve three
//! significant digits of each value.

use serde::Serialize;

const SIGNIFICANT_DIGITS: u8 = 3;
/// The share of all values between two points of a distribution, away from its tail.
const STEP: f64 = 0.005;
/// In the tail of a distribution, a new point is added when the share of larger values has fallen
/// to this fraction of its value at the last point.
const TAIL: f64 = 0.9;

/// A histogram of durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    // Stored apart from the buckets, which would round these values.
    sum: u128,
    min: u64,
    max: u64,
}

/// A summary of a [`Histogram`], in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// The number of recorded values.
    pub count: u64,
    /// The smallest value, exactly.
    pub min: f64,
    /// The mean of all values, without rounding to buckets.
    pub mean: f64,
    /// The 50th percentile (median).
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The largest value, exactly.
    pub max: f64,
}

// === impl Histogram ===

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: hdrhistogram::Histogram::new(SIGNIFICANT_DIGITS)
                .expect("hdrhistogram allows up to five digits"),
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    /// Records one value.
    ///
    /// # Panics
    ///
    /// Never: the buckets grow with the values.
    pub fn record(&mut self, nanoseconds: u64) {
        let recorded = self.counts.record(nanoseconds);
        recorded.expect("the buckets grow with the values");
        self.sum += u128::from(nanoseconds);
        self.min = self.min.min(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    /// Adds all values of `other` to this histogram.
    ///
    /// # Panics
    ///
    /// Never: the buckets grow with the values.
    pub fn add(&mut self, other: &Self) {
        let added = self.counts.add(&other.counts);
        added.expect("the buckets grow with the values");
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the smallest value, to the precision of the buckets, that at least the fraction
    /// `share` of all values does not exceed. Returns 0 if the histogram is empty.
    pub fn quantile(&self, share: f64) -> u64 {
        if self.counts.is_empty() {
            return 0;
        }
        // The upper end of a bucket may be above the largest recorded value.
        let highest = self.counts.value_at_quantile(share);
        highest.clamp(self.min, self.max)
    }

    /// Returns the summary of this histogram; all zeros if it is empty.
    pub fn latency(&self) -> Latency {
        if self.counts.is_empty() {
            return Latency::default();
        }
        let quantile = |share| milliseconds(self.quantile(share));
        Latency {
            count: self.counts.len(),
            min: milliseconds(self.min),
            mean: self.sum as f64 / self.counts.len() as f64 / 1e6,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: milliseconds(self.max),
        }
    }

    /// Returns the cumulative distribution as points that are dense enough for a line. Each point
    /// is a value in milliseconds and the share of values that do not exceed it.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let mut passed = 0;
        let mut last = 0.0;
        let mut points = Vec::new();
        for bucket in self.counts.iter_recorded() {
            passed += bucket.count_at_value();
            let share = passed as f64 / self.counts.len() as f64;
            // The tail gets more points, because it has few values and matters most.
            let is_step = share - last >= STEP || 1.0 - share <= (1.0 - last) * TAIL;
            if is_step || points.is_empty() {
                last = share;
                let value = bucket.value_iterated_to().clamp(self.min, self.max);
                points.push((milliseconds(value), share));
            }
        }
        points
    }
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_within_a_thousandth_of_its_bucket() {
        let values =
            (0..63).flat_map(|bit| [1_u64 << bit, (1 << bit) - 1, (1 << bit) | 1, 3 << (bit / 2)]);
        for value in values.chain([0, 999_999_999]) {
            let mut histogram = Histogram::default();
            // The value is the median of three, because a histogram stores the smallest and the
            // largest value exactly.
            for value in [0, value, u64::MAX] {
                histogram.record(value);
            }
            let quantile = histogram.quantile(0.5);
            assert!(quantile >= value, "{value}: {quantile}");
            assert!(quantile - value <= value / 1_000, "{value}: {quantile}");
        }
    }

    #[test]
    fn min_mean_and_max_are_exact() {
        let mut histogram = Histogram::default();
        for value in [1_000_001, 3_000_003, 123_456_789] {
            histogram.record(value);
        }
        let latency = histogram.latency();
        assert_eq!((latency.min, latency.max), (1.000_001, 123.456_789));
        assert!((latency.mean - 42.485_597_666).abs() < 1e-6, "{latency:?}");
        assert_eq!(histogram.quantile(0.0), 1_000_001);
        assert_eq!(histogram.quantile(1.0), 123_456_789);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::default();
        let mut parts = [Histogram::default(), Histogram::default()];
        for value in 1..=10_000_u64 {
            histogram.record(value * 1_000);
            parts[(value % 2) as usize].record(value * 1_000);
        }
        for (share, exact) in [
            (0.0, 1),
            (0.5, 5_000),
            (0.9, 9_000),
            (0.999, 9_990),
            (1.0, 10_000),
        ] {
            let quantile = histogram.quantile(share) as f64 / 1_000.0;
            assert!(
                (quantile / f64::from(exact) - 1.0).abs() < 0.001,
                "{share}: {quantile}"
            );
        }
        let latency = histogram.latency();
        assert_eq!(
            (latency.count, latency.max, latency.min),
            (10_000, 10.0, 0.001)
        );
        assert!((latency.mean - 5.0005).abs() < 1e-9, "{latency:?}");
        let [mut one, other] = parts;
        one.add(&other);
        assert_eq!(one.latency(), latency);
        let distribution = one.distribution();
        assert_eq!(distribution.last(), Some(&(10.0, 1.0)));
        assert!(distribution.len() < 300, "{}", distribution.len());
        assert!(distribution.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    }

    #[test]
    fn an_empty_histogram_has_no_distribution() {
        let none = Histogram::default();
        assert_eq!(none.latency(), Latency::default());
        assert!(none.distribution().is_empty());
    }
}
