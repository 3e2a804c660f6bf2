//! GroupLimits: how many groups a cache may have, and how much memory their queues may take.

/// Limits of the groups of one cache. All streams with equal selections share a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Maximum number of groups that no index finds, such as those of `app!=web`. Each of them is
    /// tested for every change. A group with many conditions counts once per 16 of them. Groups
    /// that are found by a condition of very many others, such as one namespace, count too. A watch
    /// that needs one more group is refused, except a watch of all objects. Default is
    /// [`GroupLimits::DEFAULT_UNINDEXED`].
    pub unindexed: usize,
    /// Maximum number of groups without streams. They stay for the retention age, so that streams
    /// that were cut find their events again without a search of the log. Default is
    /// [`GroupLimits::DEFAULT_IDLE`].
    pub idle: usize,
    /// Maximum bytes of the selections of these groups, with their entries in the index. A group
    /// with 1/256 of this limit or more does not stay. Default is
    /// [`GroupLimits::DEFAULT_IDLE_BYTES`].
    pub idle_bytes: usize,
    /// Maximum bytes of all queues. Above it the oldest events leave the queues, but not the log;
    /// streams that still need them read the log. Default is [`GroupLimits::DEFAULT_QUEUE_BYTES`].
    pub queue_bytes: usize,
}

impl GroupLimits {
    /// Default of [`GroupLimits::unindexed`]. The test of one group takes about 70 ns, so a change
    /// costs up to 70 µs more.
    pub const DEFAULT_UNINDEXED: usize = 1000;
    /// Default of [`GroupLimits::idle`]: one group for each node of the largest clusters.
    pub const DEFAULT_IDLE: usize = 16_384;
    /// Default of [`GroupLimits::idle_bytes`]: 16 MiB.
    pub const DEFAULT_IDLE_BYTES: usize = 16 << 20;
    /// Default of [`GroupLimits::queue_bytes`]: 64 MiB.
    pub const DEFAULT_QUEUE_BYTES: usize = 64 << 20;
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self {
            unindexed: Self::DEFAULT_UNINDEXED,
            idle: Self::DEFAULT_IDLE,
            idle_bytes: Self::DEFAULT_IDLE_BYTES,
            queue_bytes: Self::DEFAULT_QUEUE_BYTES,
        }
    }
}
