//! Operations and durations as words of evidence.

use std::time::Duration;

use crate::bill::table::{OperationName, SelectorClass};

/// Returns the objects of an operation in words, such as `all pods` or `pods by labels`.
pub(super) fn objects(operation: &OperationName) -> String {
    let resource = match operation.resource.as_str() {
        "" => "documents".to_owned(),
        _ => operation.group_resource(),
    };
    match operation.selector {
        SelectorClass::Shard => format!("a shard of {resource}"),
        SelectorClass::Unindexed => format!("{resource} by conditions without an index"),
        SelectorClass::Name => format!("single {resource}"),
        SelectorClass::Field => format!("{resource} by a field"),
        SelectorClass::Label => format!("{resource} by labels"),
        SelectorClass::Namespace => format!("all {resource} of a namespace"),
        SelectorClass::None => format!("all {resource}"),
    }
}

/// Returns a duration in whole seconds, or in minutes if it is long.
pub(super) fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_durations_are_minutes() {
        for (seconds, expected) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (299, "4 min")] {
            assert_eq!(duration(Duration::from_secs(seconds)), expected);
        }
    }
}
