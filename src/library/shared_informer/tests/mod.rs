//! Tests of shared informers on a cache with a writer that the test holds.

mod handlers;
mod history;
mod pace;
mod registrations;
mod steps;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use kubefan_core::api::{
    EventType, GroupVersionResource, LabelSelector, Object, ObjectKey, ObjectValues, Resource,
    ResourceVersion, Selection,
};
use kubefan_core::cache::{Reader, Writer};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::{cache, shutdown};
use serde::Deserialize;

use super::{Change, Changes, Config, SharedInformer};

/// The type of the tests' objects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Thing {
    metadata: Metadata,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
    labels: BTreeMap<String, String>,
}

/// The value of the label `app` of things that cannot be decoded.
const BROKEN: &str = "broken";

/// The writer of a cache of things in the namespace `n`, and a model of its content.
struct Upstream {
    writer: Writer,
    version: u64,
    things: BTreeMap<String, Thing>,
}

impl Upstream {
    /// Creates a cache with an event log of about `retention_bytes`, after its first
    /// list with no objects.
    fn new(retention_bytes: Option<usize>) -> Self {
        let (writer, _reader) = cache::cache(cache::Config {
            retention_bytes,
            retention_events: 0,
            ..cache::Config::default()
        });
        let mut upstream = Self {
            writer,
            version: 1,
            things: BTreeMap::new(),
        };
        upstream.relist();
        upstream
    }

    /// Continues with another cache, which is not ready yet, and closes the previous cache.
    fn replace_cache(&mut self) -> Reader {
        let (writer, reader) = cache::cache(cache::Config::default());
        std::mem::replace(&mut self.writer, writer).close();
        reader
    }

    fn informer(&self, config: Config) -> SharedInformer<Thing> {
        let shutdown = Shutdown::new(shutdown::Config::default());
        SharedInformer::new(self.writer.reader().clone(), resource(), config, shutdown)
    }

    /// Changes `name` in the model alone. A new object gets a new uid.
    fn change(&mut self, name: &str, app: &str) -> Object {
        self.version += 1;
        let uid = match self.things.get(name) {
            Some(thing) => thing.metadata.uid.clone(),
            None => format!("uid-{}", self.version),
        };
        let metadata = Metadata {
            name: name.to_owned(),
            uid,
            resource_version: self.version.to_string(),
            labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        };
        let thing = Thing { metadata };
        let object = object(&thing);
        self.things.insert(name.to_owned(), thing);
        object
    }

    fn put(&mut self, name: &str, app: &str) {
        let object = self.change(name, app);
        let applied = self.writer.apply(EventType::Modified, object, None);
        applied.expect("a newer version");
    }

    fn delete(&mut self, name: &str) {
        let Some(mut thing) = self.things.remove(name) else {
            return;
        };
        self.version += 1;
        thing.metadata.resource_version = self.version.to_string();
        let applied = self.writer.apply(EventType::Deleted, object(&thing), None);
        applied.expect("a newer version");
    }

    /// Replaces the cache's content by the model's.
    fn relist(&mut self) {
        let mut relist = self.writer.relist();
        for thing in self.things.values() {
            relist.add(object(thing));
        }
        self.version += 1;
        self.writer.replace(relist, ResourceVersion(self.version));
    }
}

fn resource() -> Arc<Resource> {
    Arc::new(Resource {
        gvr: GroupVersionResource::new("example.com", "v1", "things"),
        kind: "Thing".to_owned(),
        singular: "thing".to_owned(),
        short_names: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
    })
}

fn object(thing: &Thing) -> Object {
    let metadata = &thing.metadata;
    let (name, uid) = (&metadata.name, &metadata.uid);
    let (version, app) = (&metadata.resource_version, &metadata.labels["app"]);
    let labels = match app.as_str() {
        BROKEN => "null".to_owned(),
        app => format!(r#"{{"app":"{app}"}}"#),
    };
    let body = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"{uid}","resourceVersion":"{version}","labels":{labels}}}}}"#
    );
    let values = ObjectValues {
        uid: uid.as_str().into(),
        labels: vec![("app".into(), app.as_str().into())],
        ..ObjectValues::default()
    };
    let key = ObjectKey::new(Some("n"), name);
    let version = ResourceVersion(version.parse().expect("a number"));
    Object::new(key, version, &values, body.into())
}

/// Selects the objects with the label `app=app`.
fn with_app(app: &str) -> Selection {
    Selection {
        labels: LabelSelector::parse(&format!("app={app}")).expect("a selector"),
        ..Selection::default()
    }
}

/// Returns the next change if there is one now.
fn next(changes: &mut Changes<Thing>) -> Option<Change<Thing>> {
    let mut next = pin!(changes.next());
    let mut cx = Context::from_waker(Waker::noop());
    // The first poll may only yield.
    for _ in 0..2 {
        if let Poll::Ready(change) = next.as_mut().poll(&mut cx) {
            return Some(change.expect("the cache is open"));
        }
    }
    None
}

/// Returns a change as text: `+` added (`*` at first), `~` updated, `-` deleted (`?` if it was
/// missed), with the name and resource version.
fn text(change: &Change<Thing>) -> String {
    let name = |thing: &Thing| {
        let metadata = &thing.metadata;
        format!("{}{}", metadata.name, metadata.resource_version)
    };
    match change {
        Change::Added {
            object,
            is_initial_list: true,
        } => format!("*{}", name(object)),
        Change::Added { object, .. } => format!("+{}", name(object)),
        Change::Updated { old, new } => format!("{}~{}", name(old), name(new)),
        Change::Deleted(deleted) if deleted.is_final_state_known => {
            format!("-{}", name(&deleted.object))
        }
        Change::Deleted(deleted) => format!("?{}", name(&deleted.object)),
    }
}

/// Returns all changes that there are now, as text.
fn all(changes: &mut Changes<Thing>) -> Vec<String> {
    std::iter::from_fn(|| next(changes))
        .map(|change| text(&change))
        .collect()
}
