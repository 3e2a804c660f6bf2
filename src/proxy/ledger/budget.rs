//! Budget: the upper limit of memory that no connection is charged for.

use kubefan_core::telemetry::Samples;
use prometheus::IntGauge;

use super::Limits;

/// Bytes of one kind that no connection is charged for, mostly because several clients share them,
/// and the upper limit of these bytes. Clones share the count.
#[derive(Clone, Debug)]
pub struct Budget {
    kind: &'static str,
    limit: usize,
    used: IntGauge,
}

impl Budget {
    /// Creates a budget of at most `most` bytes, within `limits`. `kind` is the value of the metric
    /// label.
    pub fn new(kind: &'static str, limits: &Limits, most: usize) -> Self {
        Self {
            kind,
            limit: limits.share(most),
            used: count(),
        }
    }

    /// Creates a budget of `limit` bytes.
    #[cfg(test)]
    pub fn for_tests(limit: usize) -> Self {
        Self::new("test", &Limits::new(Some(1 << 40), None, 0), limit)
    }

    /// Returns the value of the metric label.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the upper limit of the bytes. The owner of the bytes enforces it.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the count of the bytes.
    pub fn gauge(&self) -> &IntGauge {
        &self.used
    }

    /// Returns the bytes that are used.
    pub fn used(&self) -> usize {
        usize::try_from(self.used.get()).unwrap_or_default()
    }

    /// Sets the bytes that are used.
    pub fn set_used(&self, bytes: usize) {
        self.used.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Adds the bytes and their limit to `samples`.
    pub fn sample(&self, samples: &mut Samples) {
        sample_kept(samples, self.kind, self.used(), self.limit);
    }
}

fn count() -> IntGauge {
    IntGauge::new("bytes", "bytes").expect("the name is valid")
}

/// Adds `used` bytes of one kind, and their `limit`, to `samples`.
pub fn sample_kept(samples: &mut Samples, kind: &str, used: usize, limit: usize) {
    let labels = [("kind", kind)];
    samples.gauge(
        "kubefan_kept_memory_bytes",
        "Bytes that are kept beside the caches and charged to no connection, by kind: compressed \
         lists, and texts of lists of metadata and Tables (list), compressed initial events (chunk), printed rows of Tables (row), discovery \
         and OpenAPI documents (document), the API server's 403s (forbidden), sessions (session), \
         events of bridges (bridge), owners of tokens (token), decisions about what callers may read (decision), \
         what each client uses (bill), and the queues of the caches' watched selections (queue).",
        &labels,
        used as f64,
    );
    samples.gauge(
        "kubefan_kept_memory_limit_bytes",
        "Upper limit of the bytes of each kind; of queues, in each cache.",
        &labels,
        limit as f64,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_has_an_eighth_of_the_memory_at_most() {
        const MIB: usize = 1 << 20;
        for (memory, most, expected) in [
            (16, 64, 2),
            (256, 64, 32),
            (512, 64, 64),
            (4096, 64, 64),
            (256, 16, 16),
            (64, 16, 8),
        ] {
            let limits = Limits::new(Some((memory * MIB) as u64), None, 0);
            let budget = Budget::new("list", &limits, most * MIB);
            assert_eq!(budget.limit(), expected * MIB, "{memory} MiB, {most} MiB");
        }
    }
}
