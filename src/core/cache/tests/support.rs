//! Helpers of the cache's tests: objects, selections, and reading streams without a runtime.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::api::{
    Field, FieldSelector, FieldTerm, LabelOperator, LabelRequirement, LabelSelector, Object,
    ObjectKey, ObjectValues, ResourceVersion, Selection,
};
use crate::cache::state::SharedCache;
use crate::cache::write::Pace;
use crate::cache::{Config, Relist, ReplaceOutcome, WatchItem, WatchStream, Writer};
use crate::concurrency::CoopBudget;

impl Writer {
    pub(in crate::cache) fn shared(&self) -> &SharedCache {
        &self.shared
    }

    /// Makes each change leave its last `events` events out of the groups' queues, as if the writer
    /// was interrupted there. The next change queues them first.
    pub(in crate::cache) fn hold_back(&mut self, events: usize) {
        self.held_back = events;
        self.publish(events);
    }

    pub(in crate::cache) fn has_unpublished(&self) -> bool {
        !self.unpublished.is_empty()
    }
}

impl Pace {
    /// Creates a pace that yields after each piece of work.
    pub(in crate::cache) fn slowest() -> Self {
        Self::with_scale(CoopBudget::UNITS)
    }
}

pub(in crate::cache) fn config() -> Config {
    Config {
        indexed_labels: vec!["app".to_owned()],
        field_count: 1,
        retention_events: 0,
        ..Config::default()
    }
}

pub(in crate::cache) fn key(text: &str) -> ObjectKey {
    ObjectKey::new(None, text)
}

/// An object whose label `app` and only field have the value `app`. Its body is `uid@version`.
pub(in crate::cache) fn object(text: &str, uid: &str, version: u64, app: &str) -> Object {
    object_with(text, uid, version, vec![("app".into(), app.into())], app)
}

pub(in crate::cache) fn object_with(
    text: &str,
    uid: &str,
    version: u64,
    labels: Vec<(Cow<'_, str>, Cow<'_, str>)>,
    field: &str,
) -> Object {
    let values = ObjectValues {
        uid: uid.into(),
        labels,
        fields: vec![field.into()],
    };
    let body = format!("{uid}@{version}").into();
    Object::new(key(text), ResourceVersion(version), &values, body)
}

pub(in crate::cache) fn everything() -> Arc<Selection> {
    Arc::default()
}

pub(in crate::cache) fn in_namespace(namespace: &str) -> Selection {
    Selection {
        namespace: Some(namespace.to_owned()),
        ..Selection::default()
    }
}

pub(in crate::cache) fn with_label(app: &str) -> Selection {
    let requirement = LabelRequirement {
        key: "app".to_owned(),
        operator: LabelOperator::In(vec![app.to_owned()]),
    };
    Selection {
        labels: LabelSelector {
            requirements: vec![requirement],
        },
        ..Selection::default()
    }
}

pub(in crate::cache) fn with_field(field: Field, equal: bool, value: &str) -> Selection {
    let value = value.to_owned();
    Selection {
        fields: FieldSelector {
            terms: vec![FieldTerm {
                field,
                equal,
                value,
            }],
        },
        ..Selection::default()
    }
}

/// Replaces the content as slowly as possible. The relist is interrupted after `steps` polls; then
/// returns `None`, unless it was complete before.
pub(in crate::cache) fn replace_in_steps(
    writer: &mut Writer,
    relist: Relist,
    version: ResourceVersion,
    steps: usize,
) -> Option<ReplaceOutcome> {
    let mut pace = Pace::slowest();
    let mut replaced = pin!(writer.replace_at(relist, version, &mut pace));
    let mut poll = || {
        replaced
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    };
    (0..steps).find_map(|_| match poll() {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    })
}

/// Polls `stream` once, with a waker that does nothing.
pub(in crate::cache) fn poll(stream: &mut WatchStream) -> Poll<Option<WatchItem>> {
    stream.poll_next(&mut Context::from_waker(Waker::noop()))
}

/// Reads all items until the stream waits or has ended.
pub(in crate::cache) fn drain(stream: &mut WatchStream) -> Vec<WatchItem> {
    let mut items = Vec::new();
    while let Poll::Ready(Some(item)) = poll(stream) {
        items.push(item);
    }
    items
}

/// Short texts of items: `+key` for an initial object, `=rv` for the end of the initial objects,
/// `ADDED key@rv` for a change, and `expired`.
pub(in crate::cache) fn describe(items: &[WatchItem]) -> Vec<String> {
    let describe = |item: &WatchItem| match item {
        WatchItem::Initial(object) => format!("+{}", object.key),
        WatchItem::InitialEnd(version) => format!("={version}"),
        WatchItem::Change { event, verdict } => {
            let object = event.object_for(*verdict);
            let verdict = verdict.as_str();
            format!("{verdict} {}@{}", object.key, event.resource_version)
        }
        WatchItem::Expired(_) => "expired".to_owned(),
    };
    items.iter().map(describe).collect()
}
