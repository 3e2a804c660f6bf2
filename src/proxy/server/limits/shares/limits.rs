//! The limits of what one user may have at a time.

/// What one user may have at a time, on all its connections. Callers that kubefan does not
/// authenticate are not concerned: their connections have limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimits {
    /// Upper limit of requests in progress, watches included; 0 for no limit. Default is 200,000:
    /// twice as many as watches, so that a user with very many watches can still read and write.
    pub streams: usize,
    /// Upper limit of open watches and other long-running requests, such as `exec`, from a cache or
    /// forwarded; 0 for no limit. Default is 100,000: 20 watches of an agent that runs on each of
    /// 5,000 nodes, the most that Kubernetes supports, because all its pods are one user. As far as
    /// memory is short, its limit counts first: a watch takes 4 KiB.
    pub watches: usize,
    /// Upper limit of the different scopes for which reads wait for a proof, over all resources; 0
    /// for no limit. Default is 10,000: two reads of what belongs to its node by an agent on each of
    /// 5,000 nodes, all at once.
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

/// `limit`, or the largest number if it is 0, which means no limit.
pub(super) fn or_unlimited(limit: usize) -> usize {
    match limit {
        0 => usize::MAX,
        limit => limit,
    }
}
