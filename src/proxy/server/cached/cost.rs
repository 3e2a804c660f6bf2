//! What a read that a cache has answered would have cost the API server.

use kubefan_core::api::{Query, Selection, WireFormat};
use kubefan_core::cache::Reader;
use kubefan_core::codec::Representation;

use crate::bill::estimate;
use crate::bill::estimate::{Answered, BodyFormat, ListParameters, ListVersion};
use crate::server::answers::answer::Shown;
use crate::server::answers::cached_read::CachedRead;
use crate::server::decide::{Need, Plan, Read};

/// The rules of an API server whose version is not known are those of the newest one.
const NEWEST: u32 = u32::MAX;

/// Returns what `read`, whose URL has the query `query`, means for the bill. The cache of `reader` has
/// answered it, and has put `shown` into the body. `limited_units` are those that a watch takes of the
/// limit for selections without an index. The API server is of Kubernetes 1.`minor`; `None` if its
/// version is not known.
pub(super) fn cached_read(
    (read, query): (&Read, &str),
    reader: &Reader,
    (shown, limited_units): (Shown, usize),
    minor: Option<u32>,
) -> CachedRead {
    let minor = minor.unwrap_or(NEWEST);
    let is_most_recent = read.need == Need::MostRecent;
    let answered = Answered {
        objects: shown.objects,
        bytes: shown.bytes,
        format: body_format(read.representation),
        is_most_recent,
    };
    match &read.plan {
        Plan::Get { .. } => CachedRead {
            is_unversioned: is_most_recent,
            saved: estimate::get(&answered),
            ..CachedRead::default()
        },
        Plan::List {
            selection, page, ..
        } => {
            let parameters = parameters(read, selection, &Query::parse(query), reader.size());
            let is_first_page = page.after.is_none();
            CachedRead {
                is_unindexed: reader.examines_all(selection),
                is_unversioned: is_most_recent && is_first_page,
                starts_list: is_first_page,
                objects: shown.objects,
                saved: estimate::list(minor, &parameters, &answered),
            }
        }
        Plan::Watch { selection, .. } => {
            let query = Query::parse(query);
            let parameters = parameters(read, selection, &query, reader.size());
            let sends_initial_events = query.flag("sendInitialEvents") == Some(true);
            CachedRead {
                is_unindexed: limited_units > 0,
                starts_list: sends_initial_events,
                saved: estimate::watch(minor, &parameters, sends_initial_events),
                ..CachedRead::default()
            }
        }
    }
}

/// Returns what the API server's estimate of seats depends on. The cache has `objects` objects of
/// `bytes` bytes. If it has not all of the resource, the cost is that of a smaller resource.
fn parameters(
    read: &Read,
    selection: &Selection,
    query: &Query,
    (objects, bytes): (usize, usize),
) -> ListParameters {
    let has = |name| !text(query, name).is_empty();
    ListParameters {
        stored: objects as u64,
        average_bytes: (bytes / objects.max(1)) as u64,
        names_one_object: selection.name().is_some(),
        limit: text(query, "limit").parse().unwrap_or(0),
        has_continue: has("continue"),
        has_selector: has("labelSelector") || has("fieldSelector"),
        is_indexed: is_indexed(read, query),
        version: version(
            text(query, "resourceVersion"),
            text(query, "resourceVersionMatch"),
        ),
    }
}

fn text<'a>(query: &'a Query, name: &str) -> &'a str {
    query.first(name).unwrap_or_default()
}

/// Returns true if the API server has an index for the field selector: it has one of pods.
fn is_indexed(read: &Read, query: &Query) -> bool {
    let gvr = &read.spec.resource.gvr;
    let mut terms = text(query, "fieldSelector").split(',');
    gvr.group.is_empty()
        && gvr.resource == "pods"
        && terms.any(|term| term.starts_with("spec.nodeName="))
}

fn version(version: &str, version_match: &str) -> ListVersion {
    match (version, version_match) {
        (_, "Exact") => ListVersion::Exact,
        (_, "NotOlderThan") => ListVersion::NotOlderThan,
        ("", _) => ListVersion::Unset,
        ("0", _) => ListVersion::Zero,
        _ => ListVersion::Number,
    }
}

fn body_format(representation: Representation) -> BodyFormat {
    match representation.format {
        _ if representation.view.is_table() => BodyFormat::Table,
        WireFormat::Json => BodyFormat::Json,
        WireFormat::Protobuf => BodyFormat::Protobuf,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use kubefan_core::api::{
        GroupVersionResource, Object, ObjectKey, ObjectValues, Resource, ResourceVersion,
        SelectableFields,
    };
    use kubefan_core::cache;
    use kubefan_core::informer::InformerSpec;

    use super::*;
    use crate::server::decide::plan;
    use crate::server::request::RequestInfo;

    const OBJECTS: usize = 200;

    /// A cache of pods, with an index of the label `app`.
    fn cache_of_pods() -> (cache::Writer, Reader) {
        let (mut writer, reader) = cache::cache(cache::Config {
            indexed_labels: vec!["app".to_owned()],
            ..cache::Config::default()
        });
        let mut relist = writer.relist();
        for number in 0..OBJECTS {
            let key = ObjectKey::new(Some("a"), &number.to_string());
            let values = ObjectValues::default();
            relist.add(Object::new(key, ResourceVersion(1), &values, "{}".into()));
        }
        writer.replace(relist, ResourceVersion(1));
        (writer, reader)
    }

    /// Returns what the GET of `target` means, of which `shown` was sent.
    fn of(target: &str, shown: Shown, limited_units: usize) -> CachedRead {
        let (_writer, reader) = cache_of_pods();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let info = RequestInfo::parse(&Method::GET, path, query);
        let spec = InformerSpec {
            resource: Arc::new(Resource {
                gvr: GroupVersionResource::new("", "v1", "pods"),
                kind: "Pod".to_owned(),
                singular: "pod".to_owned(),
                short_names: Vec::new(),
                namespaced: true,
                verbs: Vec::new(),
            }),
            format: WireFormat::Json,
            fields: Arc::new(SelectableFields::default()),
            custom: false,
            list_kind: None,
            settings: Arc::default(),
        };
        let representation = Representation::plain(WireFormat::Json);
        let read = plan(spec, representation, &info, &Query::parse(query));
        let read = read.expect("a plan");
        cached_read((&read, query), &reader, (shown, limited_units), Some(33))
    }

    #[test]
    fn a_get_costs_a_request() {
        let shown = Shown {
            objects: 0,
            bytes: 1_000,
        };
        for (query, is_unversioned) in [("", true), ("?resourceVersion=0", false)] {
            let target = format!("/api/v1/namespaces/a/pods/b{query}");
            let read = of(&target, shown, 0);
            assert_eq!(read.is_unversioned, is_unversioned, "{query}");
            assert!(!read.starts_list && !read.is_unindexed);
            let answered = Answered {
                objects: 0,
                bytes: 1_000,
                format: BodyFormat::Json,
                is_most_recent: is_unversioned,
            };
            assert_eq!(read.saved, estimate::get(&answered), "{query}");
        }
    }

    #[test]
    fn a_list_costs_the_seats_of_its_parameters() {
        let shown = Shown {
            objects: 5,
            bytes: 500,
        };
        // Each row: the query, whether the read is of the most recent state, whether all objects
        // are examined, and the seats in Kubernetes 1.33: one for 100 objects.
        for (query, is_unversioned, is_unindexed, seats) in [
            ("", true, false, 2),
            ("resourceVersion=0", false, false, 2),
            ("limit=10", true, false, 2),
            (
                "resourceVersion=1&resourceVersionMatch=Exact&limit=10",
                false,
                false,
                1,
            ),
            ("labelSelector=app%3Dweb", true, false, 2),
            ("labelSelector=tier%3Dweb", true, true, 2),
            ("labelSelector=app", true, true, 2),
            ("fieldSelector=metadata.name%3Db", true, false, 1),
        ] {
            let read = of(&format!("/api/v1/pods?{query}"), shown, 0);
            assert_eq!(read.is_unversioned, is_unversioned, "{query}");
            assert_eq!(read.is_unindexed, is_unindexed, "{query}");
            assert!(read.starts_list, "{query}");
            let saved = (read.saved.requests, read.saved.objects, read.saved.seats);
            assert_eq!(saved, (1, 5, seats), "{query}");
        }
        let of_namespace = of("/api/v1/namespaces/a/pods?labelSelector=tier", shown, 0);
        assert!(!of_namespace.is_unindexed);
    }

    #[test]
    fn a_watch_costs_its_start() {
        for (units, is_unindexed) in [(0, false), (3, true)] {
            let read = of("/api/v1/pods?watch=1", Shown::default(), units);
            assert_eq!(read.is_unindexed, is_unindexed);
            assert!(!read.is_unversioned && !read.starts_list);
            assert_eq!((read.saved.requests, read.saved.seats), (1, 1));
            assert_eq!((read.saved.objects, read.saved.events), (0, 0));
        }
        let target =
            "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        assert!(of(target, Shown::default(), 0).starts_list);
    }

    #[test]
    fn the_version_has_the_form_that_the_api_server_distinguishes() {
        for (number, version_match, expected) in [
            ("", "", ListVersion::Unset),
            ("0", "", ListVersion::Zero),
            ("7", "", ListVersion::Number),
            ("7", "Exact", ListVersion::Exact),
            ("7", "NotOlderThan", ListVersion::NotOlderThan),
            ("0", "NotOlderThan", ListVersion::NotOlderThan),
            ("", "NotOlderThan", ListVersion::NotOlderThan),
        ] {
            assert_eq!(version(number, version_match), expected);
        }
    }
}
