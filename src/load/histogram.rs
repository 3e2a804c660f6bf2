//! Latencies, counted in log-linear buckets: within 0.8 % of what was recorded, over any range.

use serde::Serialize;

/// Bits of a value that are kept behind its highest one.
const PRECISION: u32 = 7;
/// Between two points of a distribution: this share of all values, or so much of what is left.
const STEP: f64 = 0.005;
const TAIL: f64 = 0.9;
const SUB_BUCKETS: u64 = 1 << PRECISION;
const BUCKETS: usize = ((64 - PRECISION) as usize + 1) << PRECISION;

/// How often which nanoseconds were recorded.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// What is told of a histogram, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Values recorded.
    pub count: u64,
    /// The smallest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The largest.
    pub max: f64,
}

// === impl Histogram ===

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, nanoseconds: u64) {
        self.counts[bucket(nanoseconds)] += 1;
        self.count += 1;
        self.sum += u128::from(nanoseconds);
        self.min = self.min.min(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    /// Adds all that `other` has counted.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The smallest value that at least this share of all is not above; 0 of an empty histogram.
    pub fn quantile(&self, share: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        // Never more than the count, as the share is at most 1.
        let wanted = ((share * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut passed = 0;
        for (index, count) in self.counts.iter().enumerate() {
            passed += count;
            if passed >= wanted {
                return highest(index).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// The figures for people and programs.
    pub fn latency(&self) -> Latency {
        if self.count == 0 {
            return Latency::default();
        }
        let quantile = |share| milliseconds(self.quantile(share));
        Latency {
            count: self.count,
            min: milliseconds(self.min),
            mean: self.sum as f64 / self.count as f64 / 1e6,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: milliseconds(self.max),
        }
    }

    /// Points of the distribution, close enough for a line: milliseconds, and the share of values that are not
    /// above them.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let mut passed = 0;
        let mut last = 0.0;
        let mut points = Vec::new();
        for (index, count) in self.counts.iter().enumerate() {
            if *count == 0 {
                continue;
            }
            passed += count;
            let share = passed as f64 / self.count as f64;
            // Few values make the tail, which is what one looks at.
            let is_step = share - last >= STEP || 1.0 - share <= (1.0 - last) * TAIL;
            if is_step || passed == *count {
                last = share;
                let value = highest(index).clamp(self.min, self.max);
                points.push((milliseconds(value), share));
            }
        }
        points
    }
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// Values below 2^7 have a bucket each, others the one of their highest eight bits.
fn bucket(value: u64) -> usize {
    if value < SUB_BUCKETS {
        return value as usize;
    }
    let shift = value.ilog2() - PRECISION;
    let sub_bucket = (value >> shift) - SUB_BUCKETS;
    (((shift as usize) + 1) << PRECISION) + sub_bucket as usize
}

/// The largest value of a bucket.
fn highest(index: usize) -> u64 {
    let row = index >> PRECISION;
    let sub_bucket = (index as u64) & (SUB_BUCKETS - 1);
    match row {
        0 => sub_bucket,
        _ => {
            let shift = row - 1;
            // Of the last bucket, one more would not fit into 64 bits.
            ((sub_bucket + SUB_BUCKETS) << shift) + ((1_u64 << shift) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_within_a_hundredth_of_its_bucket() {
        let values =
            (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) - 1, (1 << bit) | 1, 3 << (bit / 2)]);
        for value in values.chain([0, u64::MAX, 999_999_999]) {
            let told = highest(bucket(value));
            assert!(told >= value, "{value}: {told}");
            assert!(told - value <= value >> PRECISION, "{value}: {told}");
        }
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
            let told = histogram.quantile(share) as f64 / 1_000.0;
            assert!(
                (told / f64::from(exact) - 1.0).abs() < 0.008,
                "{share}: {told}"
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
    fn of_nothing_there_is_nothing() {
        let none = Histogram::default();
        assert_eq!(none.latency(), Latency::default());
        assert!(none.distribution().is_empty());
    }
}
