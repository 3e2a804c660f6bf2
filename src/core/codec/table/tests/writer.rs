//! Compares complete Tables byte for byte with the Tables of a real kube-apiserver, which were
//! recorded together with the plain objects.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::Value;

use crate::api::{EventType, Object, SelectableFields, WatchEvent, WireFormat};
use crate::codec::table::{IncludeObject, Printer, RowObject, TableWriter};
use crate::codec::{Decoder, ListMetadata, MetaVersion};

const INCLUDES: [(&str, IncludeObject); 3] = [
    ("metadata", IncludeObject::Metadata),
    ("none", IncludeObject::None),
    ("object", IncludeObject::Object),
];

/// A resource whose Tables are recorded in the golden files.
struct Resource {
    name: &'static str,
    kind: &'static str,
    api_version: &'static str,
    printer: Printer,
}

fn file(name: &str) -> Bytes {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/table");
    let path = folder.join(name);
    fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .into()
}

fn resources() -> [Resource; 2] {
    let definitions: Value =
        serde_json::from_slice(&file("1.37/customresourcedefinitions.json")).unwrap();
    let definition = definitions["rows"].as_array().unwrap().iter();
    let definition = definition
        .map(|row| &row["object"])
        .find(|found| found["spec"]["group"] == "columns.kubefan.test")
        .unwrap();
    [
        Resource {
            name: "pods",
            kind: "Pod",
            api_version: "v1",
            printer: Printer::built_in("v1", "Pod").unwrap(),
        },
        Resource {
            name: "things",
            kind: "Thing",
            api_version: "columns.kubefan.test/v1",
            printer: Printer::custom(definition, "v1").unwrap(),
        },
    ]
}

impl Resource {
    fn golden(&self, name: &str) -> Bytes {
        file(&format!("bytes/{}-{name}.json", self.name))
    }

    fn now(&self) -> SystemTime {
        let now = serde_json::from_slice(&self.golden("now")).unwrap();
        UNIX_EPOCH + Duration::from_secs(now)
    }

    fn writer(&self, version: MetaVersion, include: IncludeObject) -> TableWriter {
        TableWriter::new(version, include, self.printer.columns())
    }

    fn object<'a>(&self, object: &'a Object) -> RowObject<'a>
    where
        Self: 'a,
    {
        RowObject {
            body: &object.body,
            kind: self.kind,
            api_version: self.api_version,
            resource_version: None,
        }
    }

    fn row(&self, writer: &TableWriter, object: &Object) -> String {
        let object = self.object(object);
        let cells = self.printer.cells(&object.parsed().unwrap(), self.now());
        writer.row(&cells, object).unwrap()
    }
}

fn decoder() -> Decoder {
    let fields = SelectableFields::custom(true, &[]);
    Decoder::new(WireFormat::Json, Arc::new(fields))
}

#[track_caller]
fn assert_same(got: &[u8], wanted: &[u8], what: &str) {
    let (got, wanted) = (
        String::from_utf8_lossy(got),
        String::from_utf8_lossy(wanted),
    );
    assert_eq!(got, wanted, "{what}");
}

#[test]
fn lists_and_single_objects_equal_the_servers() {
    for resource in resources() {
        let page = decoder().list(&resource.golden("list")).unwrap();
        let tables = INCLUDES.map(|(name, include)| (name, MetaVersion::V1, include));
        let older = ("v1beta1", MetaVersion::V1Beta1, IncludeObject::Metadata);
        for (name, version, include) in tables.into_iter().chain([older]) {
            let writer = resource.writer(version, include);
            let items = page.items.iter();
            let rows: Vec<_> = items.map(|item| resource.row(&writer, item)).collect();
            let got = writer.list(page.resource_version.into(), &rows);
            assert_same(&got, &resource.golden(name), name);
        }
        let writer = resource.writer(MetaVersion::V1, IncludeObject::Metadata);
        let first = resource.row(&writer, &page.items[0]);
        let one = writer.list(
            page.items[0].resource_version.into(),
            std::slice::from_ref(&first),
        );
        assert_same(&one, &resource.golden("get"), "get");

        let wanted: Value = serde_json::from_slice(&resource.golden("page")).unwrap();
        let metadata = ListMetadata {
            continue_token: wanted["metadata"]["continue"].as_str().unwrap(),
            remaining_item_count: wanted["metadata"]["remainingItemCount"].as_u64(),
            ..page.resource_version.into()
        };
        let got = writer.list(metadata, &[first]);
        assert_same(&got, &resource.golden("page"), "page");
    }
}

#[test]
fn watch_events_equal_the_servers() {
    for resource in resources() {
        for (name, include) in INCLUDES {
            assert_watch_equals_the_servers(&resource, name, include);
        }
    }
}

fn assert_watch_equals_the_servers(resource: &Resource, name: &str, include: IncludeObject) {
    let plain = resource.golden("watch-plain");
    let golden = resource.golden(&format!("watch-{name}"));
    let mut writer = resource.writer(MetaVersion::V1, include);
    let mut last: Option<Object> = None;
    let mut wanted_frames = golden.split_inclusive(|byte| *byte == b'\n');
    for frame in plain.split_inclusive(|byte| *byte == b'\n') {
        let wanted = wanted_frames.next().expect("a recorded Table");
        // The events were recorded over some seconds, so ages differ from event to event. The
        // recorded cells are used, and only the encoding around them is compared.
        let table: Value = serde_json::from_slice(wanted).unwrap();
        let cells = table["object"]["rows"][0]["cells"].as_array().unwrap();
        let (event_type, object) = match decoder().event(frame.to_vec().into()).unwrap() {
            WatchEvent::Change {
                event_type, object, ..
            } => (event_type, object),
            WatchEvent::Bookmark(bookmark) => {
                let got = writer.bookmark(cells, &bookmark).unwrap();
                assert_same(&got, wanted, name);
                let nothing = Value::Object(serde_json::Map::new());
                let zero = resource.printer.cells(&nothing, resource.now());
                assert_eq!(&zero, cells);
                continue;
            }
            WatchEvent::Error(status) => panic!("{status:?}"),
        };
        let row = writer.row(cells, resource.object(&object)).unwrap();
        let rv = object.resource_version;
        let got = writer.event(event_type, rv, &row);
        assert_same(&got, wanted, name);
        if event_type == EventType::Deleted && resource.name == "pods" {
            // The object before its deletion gives the same row if the deletion's version replaces
            // the version in it.
            let last = RowObject {
                resource_version: Some(rv),
                ..resource.object(last.as_ref().unwrap())
            };
            assert_eq!(writer.row(cells, last).unwrap(), row);
        }
        last = Some(object);
    }
    assert_eq!(wanted_frames.next(), None);
}

#[test]
fn include_object_is_read_as_the_server_reads_it() {
    let read = IncludeObject::parse;
    assert_eq!(read(None), Ok(IncludeObject::Metadata));
    assert_eq!(read(Some("")), Ok(IncludeObject::Metadata));
    assert_eq!(read(Some("None")), Ok(IncludeObject::None));
    assert_eq!(read(Some("Object")), Ok(IncludeObject::Object));
    let said = "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": \
                must be 'Metadata', 'Object', 'None', or empty";
    assert_eq!(read(Some("Foo")), Err(said.to_owned()));
}
