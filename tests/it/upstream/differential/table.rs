//! Parses the tables of tests/differential into rows, and expands each row into cases.

use std::fs;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue, Method};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
/// The resources in the tests' cluster with Tables that kubefan prints.
pub(super) const PRINTED: [&str; 16] = [
    "configmaps",
    "pods",
    "nodes",
    "namespaces",
    "secrets",
    "services",
    "replicationcontrollers",
    "jobs",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "persistentvolumes",
    "endpointslices",
    "events",
    "shapes",
];
const NOT_ENCODED: &[u8] = b"-._~!$&'()*+,;=:@/?%{}[]";

/// The HTTP version of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// The format that a case requests with its Accept header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RequestedFormat {
    Json,
    Protobuf,
    MetadataJson,
    MetadataProtobuf,
    Table,
    Yaml,
    /// The row sets the Accept header, or none is sent.
    Own,
}

/// One line of a table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// File name and line number, for messages.
    pub(super) location: String,
    /// How kubefan must answer: `cache`, `rejected`, or the reason for forwarding.
    pub(super) answerer: String,
    pub(super) requested_formats: Vec<RequestedFormat>,
    pub(super) status: Option<u16>,
    pub(super) items: Option<usize>,
    pub(super) method: Method,
    /// Path and query; placeholders such as `{rv}` are not yet replaced.
    pub(super) target: String,
    headers: Vec<(String, String)>,
}

/// One request to be compared: a row with one protocol and one format.
#[derive(Clone, Debug)]
pub(super) struct Case<'a> {
    pub(super) row: &'a Row,
    pub(super) protocol: Protocol,
    pub(super) requested_format: RequestedFormat,
}

/// Reads a file in tests/differential.
pub(super) fn file(name: &str) -> String {
    let path = folder().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(super) fn folder() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential")).to_owned()
}

/// Parses a table. A line with a name that an `each` line defines becomes one row for each value.
///
/// # Panics
/// Panics at a line that cannot be parsed.
pub(super) fn rows(name: &str) -> Vec<Row> {
    let mut each: Vec<(String, Vec<String>)> = Vec::new();
    let mut rows = Vec::new();
    for (index, line) in file(name).lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let location = format!("{name}:{}", index + 1);
        if let Some(rest) = line.strip_prefix("each ") {
            let (name, values) = rest.split_once(" = ").expect(&location);
            each.retain(|(known, _)| known != name);
            each.push((name.to_owned(), words(values)));
            continue;
        }
        for line in expand(line, &each) {
            rows.push(row(&location, &line));
        }
    }
    rows
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn expand(line: &str, each: &[(String, Vec<String>)]) -> Vec<String> {
    let mut lines = vec![line.to_owned()];
    for (name, values) in each.iter().filter(|(name, _)| line.contains(name.as_str())) {
        let filled = lines
            .iter()
            .flat_map(|line| values.iter().map(|value| line.replace(name, value)));
        lines = filled.collect();
    }
    lines
}

fn row(location: &str, line: &str) -> Row {
    let mut parts = line.split(" | ");
    let mut first = parts.next().expect(location);
    let mut word = || {
        let (word, rest) = first.split_once(char::is_whitespace).expect(location);
        first = rest.trim_start();
        word
    };
    let answerer = word().to_owned();
    let requested_formats = word()
        .split(',')
        .map(|name| requested_format(location, name))
        .collect();
    let (mut status, mut items) = (None, None);
    let method = loop {
        let word = word();
        if let Some(number) = word.strip_prefix("items=") {
            items = Some(number.parse().expect(location));
        } else if word.starts_with(|c: char| c.is_ascii_digit()) {
            status = Some(word.parse().expect(location));
        } else {
            break word.parse().expect(location);
        }
    };
    let header = |text: &str| {
        let (name, value) = text.split_once(':').expect(location);
        (name.to_owned(), value.trim().to_owned())
    };
    Row {
        location: location.to_owned(),
        answerer,
        requested_formats,
        status,
        items,
        method,
        target: encoded(first),
        headers: parts.map(header).collect(),
    }
}

fn requested_format(location: &str, name: &str) -> RequestedFormat {
    match name {
        "json" => RequestedFormat::Json,
        "pb" => RequestedFormat::Protobuf,
        "meta" => RequestedFormat::MetadataJson,
        "metapb" => RequestedFormat::MetadataProtobuf,
        "table" => RequestedFormat::Table,
        "yaml" => RequestedFormat::Yaml,
        "-" => RequestedFormat::Own,
        _ => panic!("{location}: unknown format {name:?}"),
    }
}

/// Percent-encodes characters that a URL may not contain, such as ` `, `<`, `"` and `\`, so that
/// tables can contain them unescaped.
fn encoded(target: &str) -> String {
    let mut text = String::new();
    for byte in target.bytes() {
        if byte.is_ascii_alphanumeric() || NOT_ENCODED.contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Returns the cases of the rows: each row over HTTP/1.1 and over HTTP/2, in each of its formats.
pub(super) fn cases(rows: &[Row]) -> Vec<Case<'_>> {
    let protocols = [Protocol::Http1, Protocol::Http2];
    let of = |row| {
        protocols
            .into_iter()
            .flat_map(move |protocol| of_protocol(row, protocol))
    };
    rows.iter().flat_map(of).collect()
}

fn of_protocol(row: &Row, protocol: Protocol) -> impl Iterator<Item = Case<'_>> {
    row.requested_formats
        .iter()
        .map(move |&requested_format| Case {
            row,
            protocol,
            requested_format,
        })
}

impl Row {
    /// Returns the path of the target, without the query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns true if the row sets this header.
    pub(super) fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|(header, _)| header == name)
    }

    /// Returns the first value of a query parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        parameter(&self.target, name)
    }

    /// Returns the plural of the resource that the path names.
    pub(super) fn resource(&self) -> Option<&str> {
        self.resource_segments().first().copied()
    }

    /// Returns true if the path names an object, not a collection.
    fn is_object(&self) -> bool {
        self.resource_segments().len() > 1
    }

    /// Returns the segments of the path from the resource on.
    fn resource_segments(&self) -> Vec<&str> {
        let segments: Vec<&str> = self.path().trim_matches('/').split('/').collect();
        match segments.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => match rest {
                ["namespaces", _, rest @ ..] if !rest.is_empty() => rest.to_vec(),
                rest => rest.to_vec(),
            },
            _ => Vec::new(),
        }
    }

    /// Returns true if a successful answer is a stream of events.
    pub(super) fn is_watch(&self) -> bool {
        let is_true = |value: &str| !matches!(value.to_lowercase().as_str(), "0" | "false");
        self.path().contains("/watch/")
            || (!self.is_object() && self.parameter("watch").is_some_and(is_true))
    }
}

/// Returns the first value of a query parameter of `target`. A parameter
/// without `=` has an empty value.
pub(super) fn parameter<'a>(target: &'a str, name: &str) -> Option<&'a str> {
    let (_, query) = target.split_once('?')?;
    let mut pairs = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Gives the watch `target` a `timeoutSeconds` of 10 instead of 1 to 9. `None` if
/// the watch has another timeout, or if it waits for a future version, because its
/// answer then depends on the timeout.
pub(super) fn with_more_time(target: &str) -> Option<String> {
    let seconds: u32 = parameter(target, "timeoutSeconds")?.parse().ok()?;
    let waits_for_the_future = target.contains("resourceVersion=99999999");
    let is_short = (1..10).contains(&seconds) && !waits_for_the_future;
    let (few, ten) = (format!("timeoutSeconds={seconds}"), "timeoutSeconds=10");
    is_short.then(|| target.replacen(&few, ten, 1))
}

impl Case<'_> {
    /// Returns the request's headers. The row's headers override
    /// defaults; an empty value removes one.
    pub(super) fn headers(&self, number: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", HeaderValue::from_static("kubefan-it"));
        headers.insert(
            "audit-id",
            format!("case-{number}").parse().expect("a value"),
        );
        if let Some(accept) = self.accept() {
            headers.insert("accept", accept.parse().expect("a media type"));
        }
        for (name, value) in &self.row.headers {
            let name: HeaderName = name.parse().expect("a header name");
            match value.as_str() {
                "" => drop(headers.remove(name)),
                value => drop(headers.insert(name, value.parse().expect("a header value"))),
            }
        }
        headers
    }

    fn accept(&self) -> Option<String> {
        let stream = if self.row.is_watch() {
            ";stream=watch"
        } else {
            ""
        };
        let collection = !self.row.is_watch() && !self.row.is_object();
        let list = if collection { "List" } else { "" };
        let metadata = |media| format!("{media};as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1");
        match self.requested_format {
            RequestedFormat::Json => Some("application/json".to_owned()),
            RequestedFormat::Protobuf => Some(format!("{PROTOBUF}{stream}")),
            RequestedFormat::MetadataJson => Some(metadata("application/json")),
            RequestedFormat::MetadataProtobuf => Some(metadata(PROTOBUF)),
            RequestedFormat::Table => Some(TABLE.to_owned()),
            RequestedFormat::Yaml => Some("application/yaml".to_owned()),
            RequestedFormat::Own => None,
        }
    }

    /// Returns the location, protocol, format and request of the case, for messages.
    pub(super) fn name(&self) -> String {
        let Row {
            location,
            method,
            target,
            headers,
            ..
        } = self.row;
        let mut name = format!(
            "{location} {:?} {:?} {method} {target}",
            self.protocol, self.requested_format
        );
        for (header, value) in headers {
            name.push_str(&format!(" | {header}: {value}"));
        }
        name
    }
}

#[test]
fn a_row_is_parsed() {
    let row = row(
        "table:1",
        r"cache json,pb 200 items=2 GET /api/v1/namespaces/a/pods?watch=1&x=a\, b | accept: x",
    );
    assert_eq!((row.status, row.items), (Some(200), Some(2)));
    assert_eq!(row.target, "/api/v1/namespaces/a/pods?watch=1&x=a%5C,%20b");
    assert!(row.is_watch());
    assert_eq!(cases(std::slice::from_ref(&row)).len(), 4);
    assert_eq!(row.parameter("x"), Some("a%5C,%20b"));
    let each = vec![
        ("{k}".to_owned(), words("a b")),
        ("{l}".to_owned(), words("c d")),
    ];
    assert_eq!(
        expand("{k}{l}", &each),
        ["ac", "ad", "bc", "bd"].map(str::to_owned)
    );
    for (path, resource, is_object) in [
        ("/api/v1/pods", Some("pods"), false),
        ("/api/v1/namespaces", Some("namespaces"), false),
        ("/api/v1/namespaces/a", Some("namespaces"), true),
        ("/api/v1/namespaces/a/pods", Some("pods"), false),
        ("/api/v1/namespaces/a/pods/p", Some("pods"), true),
        ("/apis/apps/v1/deployments", Some("deployments"), false),
        ("/version", None, false),
    ] {
        let row = Row {
            target: path.to_owned(),
            ..row.clone()
        };
        assert_eq!(row.resource(), resource, "{path}");
        assert_eq!(row.is_object(), is_object, "{path}");
    }
}
