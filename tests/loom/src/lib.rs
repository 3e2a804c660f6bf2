//! The cache's wake protocol under loom: kubefan's own files of the groups' queues and of the wakes,
//! with loom's atomics, locks and threads.
//!
//! loom runs a scenario again and again, in all orders in which the steps of its threads can meet,
//! and with all values that the memory model lets them read.

#![allow(
    dead_code,
    reason = "the scenarios use a part of the files that they compile"
)]

/// The types of `api` that the files use. Every event concerns every selection.
mod api {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum EventType {
        Modified,
    }

    #[derive(Debug, Default)]
    pub(crate) struct Selection;

    impl Selection {
        pub(crate) fn units(&self) -> usize {
            1
        }
    }
}

pub mod mutation;

mod cache {
    mod sync;

    mod log {
        use std::collections::VecDeque;
        use std::sync::Arc;

        use crate::api::EventType;
        use crate::api::Selection;

        #[derive(Debug)]
        pub(crate) struct Event;

        impl Event {
            pub(crate) fn verdict(&self, _: &Selection) -> Option<EventType> {
                Some(EventType::Modified)
            }
        }

        pub(crate) type Batch = VecDeque<(Arc<Event>, Option<EventType>)>;

        /// The events have no bytes here, so only their number limits a batch.
        pub(in crate::cache) fn batch_length<'a>(
            events: impl ExactSizeIterator<Item = &'a Arc<Event>>,
            max: usize,
        ) -> usize {
            events.len().min(max)
        }
    }

    #[path = "../../../../src/core/cache/wake/mod.rs"]
    mod wake;

    pub(crate) mod groups {
        #[path = "../../../../../src/core/cache/groups/group.rs"]
        mod group;

        pub(crate) mod scenarios;
    }
}

pub use cache::groups::scenarios::Order;
pub use cache::groups::scenarios::a_dispatcher_that_is_dropped;
pub use cache::groups::scenarios::a_stream_beside_one_that_leaves;
pub use cache::groups::scenarios::a_stream_woken_by_its_dispatcher;
pub use cache::groups::scenarios::a_stream_woken_by_the_writer;
