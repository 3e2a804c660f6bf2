//! The limits of what one user may have at a time.

/// What one user may have at a time, on all its connections. These limits do not apply to callers
/// that kubefan does not authenticate: their connections have separate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimits {
    /// Upper limit of requests in progress, watches included; 0 for no limit. Default is 200,000:
    /// twice as many as watches, so that a user with very many watches can still read and write.
    pub streams: usize,
    /// Upper limit of open watches and other long-running requests, such as `exec`, from a cache or
    /// forwarded; 0 for no limit. Default is 100,000: 20 watches for each pod of an agent on 5,000
    /// nodes, the most that Kubernetes supports. All pods of such an agent are one user. If memory
    /// is short, the limit of memory is reached first: a watch takes 4 KiB.
    pub watches: usize,
    /// Upper limit of the different scopes for which reads wait for a proof, over all resources; 0
    /// for no limit. Default is 10,000: an agent on each of 5,000 nodes makes two concurrent reads
    /// of what belongs to its node.
    pub proof_scopes: usize,
}

impl Default for UserLimits {
    fn default() -> Self {
        Self {
            streams: 200_000,
            watches: 100_000,
            proof_scopes: 10_000,
        }
    }
}

/// Returns `limit`, or the largest number if `limit` is 0, which means no limit.
pub(super) fn or_unlimited(limit: usize) -> usize {
    match limit {
        0 => usize::MAX,
        limit => limit,
    }
}
