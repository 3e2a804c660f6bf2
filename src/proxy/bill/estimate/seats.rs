//! The seats that API Priority and Fairness gives to a LIST or WATCH (KEP-1040).
//!
//! The rules are those of the work estimator in `k8s.io/apiserver`, in the folder
//! `pkg/util/flowcontrol/request`, with the feature gates at their defaults. They differ between
//! versions:
//!
//! | Kubernetes | lists of the most recent state, and pages | watches | seats |
//! |---|---|---|---|
//! | up to 1.30 | are read from etcd, except pages at version 0 | have one seat | by the number of objects, at most 10 |
//! | 1.31 | the first page, or all, from the cache of the API server | have one seat | the same |
//! | 1.32 | the same | like lists with `sendInitialEvents=true` | the same |
//! | 1.33 | the same | have one seat | the same |
//! | 1.34 | the same | like lists with `sendInitialEvents=true` | by bytes, at most 100; at most 10 from the cache |
//! | from 1.35 | the same | also like lists without a version, and with version 0 | the same |
//!
//! A priority level may set a lower limit: 15 % of its concurrency, or its concurrency divided by
//! the size of its hand. It is not known here. With the defaults it is 8 for `global-default`, and
//! no limit for a list from the cache in the others.

/// Objects of one seat, up to 1.33.
const OBJECTS_PER_SEAT: u64 = 100;
/// Bytes of one seat, from 1.34 on.
const BYTES_PER_SEAT: u64 = 100_000;
/// A list from the cache is streamed, so it holds at most these bytes.
const MAX_STREAMED_BYTES: u64 = 1_000_000;
/// The size of objects whose size is not known.
const MAX_OBJECT_BYTES: u64 = 1_500_000;
/// The most seats of a list, up to 1.33.
const MAX_SEATS_BY_OBJECTS: u64 = 10;
/// The most seats of a list, from 1.34 on.
const MAX_SEATS_BY_BYTES: u64 = 100;

/// What the estimator looks at in a LIST or WATCH.
#[derive(Clone, Copy, Debug)]
pub struct ListParameters {
    /// All objects of the resource, in all namespaces.
    pub stored: u64,
    /// The average size of an object in etcd, in bytes. A cache has larger objects if they are JSON
    /// there and protobuf in etcd: by about 40 %.
    pub average_bytes: u64,
    /// True if the field selector names one object.
    pub names_one_object: bool,
    /// The parameter `limit`; 0 for none.
    pub limit: u64,
    /// True if the request has a continue token.
    pub has_continue: bool,
    /// True if the request has a label or field selector.
    pub has_selector: bool,
    /// True if the API server finds the objects by an index: pods by `spec.nodeName`, and one object
    /// by its name.
    pub is_indexed: bool,
    /// The resource version, and how it is compared.
    pub version: ListVersion,
}

/// The resource version of a LIST or WATCH, and how it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListVersion {
    /// None: the most recent state.
    Unset,
    /// `0`: any state.
    Zero,
    /// Another one, without `resourceVersionMatch`.
    Number,
    /// Any, with `resourceVersionMatch=NotOlderThan`.
    NotOlderThan,
    /// Any, with `resourceVersionMatch=Exact`.
    Exact,
}

// === impl ListParameters ===

impl ListParameters {
    /// Returns the number of objects that are compared with a selector.
    pub(super) fn examined(&self) -> u64 {
        let needs_all = self.has_selector && !self.is_indexed && !self.names_one_object;
        if needs_all { self.stored } else { 0 }
    }

    /// Returns true if an API server of 1.`minor` reads the list from etcd.
    fn is_from_etcd(&self, minor: u32) -> bool {
        let is_exact = match self.version {
            ListVersion::Exact => true,
            ListVersion::Number => self.limit > 0,
            ListVersion::Unset | ListVersion::Zero | ListVersion::NotOlderThan => false,
        };
        let is_old = minor <= 30;
        let is_page = self.limit > 0 && self.version != ListVersion::Zero;
        let is_most_recent = self.version == ListVersion::Unset;
        self.has_continue || is_exact || is_old && (is_page || is_most_recent)
    }

    /// Returns the objects of one answer if no selector excludes any.
    fn page(&self) -> u64 {
        match self.limit {
            0 => self.stored,
            limit => limit.min(self.stored),
        }
    }

    fn seats(&self, minor: u32, is_from_etcd: bool) -> u64 {
        let (seats, most) = if minor < 34 {
            (self.seats_by_objects(is_from_etcd), MAX_SEATS_BY_OBJECTS)
        } else {
            (self.seats_by_bytes(is_from_etcd), MAX_SEATS_BY_BYTES)
        };
        seats.clamp(1, most)
    }

    fn seats_by_objects(&self, is_from_etcd: bool) -> u64 {
        let processed = match (self.names_one_object, is_from_etcd, self.has_selector) {
            (true, ..) => 1,
            (false, false, _) => self.stored,
            (false, true, true) => self.stored.saturating_add(self.page()),
            (false, true, false) => self.page().saturating_mul(2),
        };
        processed.div_ceil(OBJECTS_PER_SEAT)
    }

    fn seats_by_bytes(&self, is_from_etcd: bool) -> u64 {
        let average = match (self.average_bytes, self.stored) {
            (0, 1..) => MAX_OBJECT_BYTES,
            (average, _) => average,
        };
        let loaded = match (self.names_one_object, is_from_etcd, self.has_selector) {
            (true, ..) => 1,
            (false, true, true) => self.page().max(self.stored / 2),
            (false, ..) => self.page(),
        };
        let bytes = loaded.saturating_mul(average);
        let bytes = match is_from_etcd {
            true => bytes,
            false => bytes.min(MAX_STREAMED_BYTES),
        };
        bytes.div_ceil(BYTES_PER_SEAT)
    }
}

/// Returns the seats of a LIST at an API server of Kubernetes 1.`minor`.
pub(super) fn list_seats(minor: u32, parameters: &ListParameters) -> u64 {
    parameters.seats(minor, parameters.is_from_etcd(minor))
}

/// Returns the seats of a WATCH at its start, at an API server of Kubernetes 1.`minor`. With
/// `sends_initial_events`, its parameter `sendInitialEvents` is true.
pub(super) fn watch_seats(
    minor: u32,
    parameters: &ListParameters,
    sends_initial_events: bool,
) -> u64 {
    let is_estimated = match minor {
        32 | 34 => sends_initial_events,
        35.. => {
            let version = parameters.version;
            sends_initial_events || matches!(version, ListVersion::Unset | ListVersion::Zero)
        }
        _ => false,
    };
    if is_estimated {
        parameters.seats(minor, false)
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: ListParameters = ListParameters {
        stored: 950,
        average_bytes: 700,
        names_one_object: false,
        limit: 0,
        has_continue: false,
        has_selector: false,
        is_indexed: false,
        version: ListVersion::Zero,
    };

    fn limited(limit: u64, version: ListVersion) -> ListParameters {
        ListParameters {
            limit,
            version,
            ..ALL
        }
    }

    #[test]
    fn lists_have_the_seats_of_the_version() {
        use ListVersion::{Exact, NotOlderThan, Number, Unset, Zero};
        let selected = |limit, version| ListParameters {
            has_selector: true,
            ..limited(limit, version)
        };
        let many = |parameters| ListParameters {
            stored: 100_000,
            average_bytes: 5_000,
            ..parameters
        };
        let next = ListParameters {
            has_continue: true,
            ..limited(100, ListVersion::Unset)
        };
        let one = ListParameters {
            names_one_object: true,
            ..many(selected(0, ListVersion::Unset))
        };
        let empty = ListParameters { stored: 0, ..ALL };
        let unsized_objects = ListParameters {
            average_bytes: 0,
            ..ALL
        };
        // The seats in 1.30, in 1.31 to 1.33, and from 1.34 on.
        for (what, parameters, seats) in [
            ("all, at version 0", ALL, [10, 10, 7]),
            ("a page at version 0", limited(100, Zero), [10, 10, 1]),
            ("the most recent state", limited(0, Unset), [10, 10, 7]),
            ("its first page", limited(100, Unset), [2, 10, 1]),
            ("a selection of it", selected(0, Unset), [10, 10, 7]),
            ("its page at a version", limited(100, Number), [2, 2, 1]),
            ("all not older", limited(0, Number), [10, 10, 7]),
            ("a page not older", limited(100, NotOlderThan), [2, 10, 1]),
            ("a next page", next, [2, 2, 1]),
            ("exactly", limited(0, Exact), [10, 10, 7]),
            ("selected exactly", selected(10, Exact), [10, 10, 4]),
            ("one object", one, [1, 1, 1]),
            ("no objects", empty, [1, 1, 1]),
            ("objects of unknown size", unsized_objects, [10, 10, 10]),
            ("many", many(ALL), [10, 10, 10]),
            ("many exactly", many(limited(0, Exact)), [10, 10, 100]),
            ("a page of many", many(limited(100, Unset)), [2, 10, 5]),
        ] {
            for (minor, seats) in [
                (29, seats[0]),
                (30, seats[0]),
                (31, seats[1]),
                (32, seats[1]),
                (33, seats[1]),
                (34, seats[2]),
                (37, seats[2]),
            ] {
                assert_eq!(list_seats(minor, &parameters), seats, "{what}, 1.{minor}");
            }
        }
    }

    #[test]
    fn watches_have_the_seats_of_the_version() {
        // 950 objects are ten seats by their number, and seven by their bytes.
        let with_version = limited(0, ListVersion::Number);
        for (minor, initial, from_zero, from_version) in [
            (30, 1, 1, 1),
            (31, 1, 1, 1),
            (32, 10, 1, 1),
            (33, 1, 1, 1),
            (34, 7, 1, 1),
            (35, 7, 7, 1),
            (37, 7, 7, 1),
        ] {
            let found = [
                watch_seats(minor, &with_version, true),
                watch_seats(minor, &ALL, false),
                watch_seats(minor, &with_version, false),
            ];
            assert_eq!(found, [initial, from_zero, from_version], "1.{minor}");
        }
    }
}
