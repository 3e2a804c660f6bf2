//! Keeps the rooms' doors where ARCHITECTURE.md draws them.
//!
//! It reads the sources as text, so a room's name in a string or a block comment counts too: reword
//! that. Names that come out of macros are not seen.

use std::collections::BTreeSet;
use std::path::Path;

use crate::repository::read;
use crate::repository::root;
use crate::repository::rust_files;

/// (room, rooms it may name). A room may name only rooms above it, so there are no cycles.
pub(crate) const ROOMS: &[(&str, &str)] = &[
    ("shutdown", ""),
    ("telemetry", ""),
    ("concurrency", ""),
    ("body", "concurrency"),
    ("mutation", ""),
    ("api", ""),
    ("workload", ""),
    ("net", "shutdown telemetry"),
    ("codec", "api"),
    ("cache", "telemetry concurrency mutation api"),
    ("upstream", "telemetry body api codec"),
    (
        "informer",
        "shutdown telemetry concurrency mutation api codec cache upstream",
    ),
    (
        "server",
        "shutdown telemetry concurrency body api net codec cache upstream informer",
    ),
    ("sim", "shutdown telemetry api net codec cache server"),
    ("load", "shutdown body api upstream"),
    (
        "config",
        "shutdown telemetry api net cache upstream informer server load",
    ),
    (
        "app",
        "shutdown telemetry api net codec cache upstream informer server sim workload config",
    ),
    (
        "commands",
        "shutdown telemetry api net upstream load config app",
    ),
];

/// (crate or path, the only rooms that may name it).
const OUTSIDERS: &[(&str, &str)] = &[
    ("clap", "config commands"),
    ("hyper", "net upstream server sim"),
    ("hyper_util", "net upstream server"),
    ("kube", "api upstream"),
    (
        "prometheus",
        "telemetry net cache upstream informer server app",
    ),
    ("rcgen", "net"),
    ("rustls", "net upstream"),
    ("schemars", "config"),
    (
        "tokio",
        "shutdown telemetry concurrency body net cache upstream informer server sim load app commands",
    ),
    ("tokio::net", "net upstream app"),
];

/// Neighbours inside a room that must not meet: (folder, path it may not name).
const STRANGERS: &[(&str, &str)] = &[
    ("server/filters/", "::handlers"),
    ("server/handlers/", "::filters"),
];

/// Longest file, tests apart.
const MAX_LINES: usize = 600;

#[test]
fn the_table_has_no_cycles() {
    for (i, (room, may)) in ROOMS.iter().enumerate() {
        let above: Vec<_> = ROOMS[..i].iter().map(|(room, _)| *room).collect();
        for named in may.split_whitespace() {
            assert!(above.contains(&named), "{named} is not above {room}");
        }
    }
}

#[test]
fn rooms_keep_their_doors() {
    let src = root().join("src");
    let mut faults = Vec::new();
    for file in rust_files(&src) {
        let name = file.strip_prefix(&src).unwrap().to_str().unwrap();
        if !matches!(name, "main.rs" | "lib.rs") && !name.ends_with("tests.rs") {
            faults.extend(faults_of(name, &read(&file)));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn every_room_of_the_table_is_there() {
    let src = root().join("src");
    let is_there = |room: &str| src.join(room).is_dir() || src.join(format!("{room}.rs")).is_file();
    for (room, _) in ROOMS {
        assert!(is_there(room), "{room} has no folder or file in src");
    }
}

/// What is wrong with one file; `name` is its path below src.
fn faults_of(name: &str, text: &str) -> Vec<String> {
    let room = name.split(['/', '.']).next().unwrap();
    let Some((_, may)) = ROOMS.iter().find(|(known, _)| *known == room) else {
        return vec![format!("{name}: unknown room")];
    };
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code = code_of(name, room, text);
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!("{lines} lines, more than {MAX_LINES}"));
    }
    if code.contains("super::super") {
        faults.push("super::super: name the room".to_owned());
    }
    for named in names_after(&code, "crate::") {
        if named == "{" {
            faults.push("crate::{…}: write one use a name".to_owned());
        } else if named != room && !allows(may, &named) {
            faults.push(format!("{room} may not name {named}"));
        }
    }
    for (outsider, rooms) in OUTSIDERS {
        if names(&code, outsider) && !allows(rooms, room) {
            faults.push(format!("{room} may not name {outsider}"));
        }
    }
    for (folder, path) in STRANGERS {
        if name.starts_with(folder) && code.contains(path) {
            faults.push(format!("{folder} may not name {path}"));
        }
    }
    faults
        .iter()
        .map(|fault| format!("{name}: {fault}"))
        .collect()
}

/// The text without line comments; `super::` at the top of a room is `crate::`.
fn code_of(name: &str, room: &str, text: &str) -> String {
    let uncommented: Vec<_> = text
        .lines()
        .map(|line| line.split("//").next().unwrap())
        .collect();
    let code = uncommented.join("\n");
    if Path::new(name).components().count() == 1 || name == format!("{room}/mod.rs") {
        return code.replace("super::", "crate::");
    }
    code
}

fn allows(rooms: &str, room: &str) -> bool {
    rooms.split_whitespace().any(|allowed| allowed == room)
}

/// Whether the code has `outsider::`, and not as the end of a longer name.
fn names(code: &str, outsider: &str) -> bool {
    let path = format!("{outsider}::");
    code.match_indices(&path).any(|(at, _)| {
        !code[..at].ends_with(|before: char| before.is_alphanumeric() || "_:".contains(before))
    })
}

/// First path segment after each `prefix`; `{` for a group.
fn names_after(code: &str, prefix: &str) -> BTreeSet<String> {
    let segment = |rest: &str| match rest.starts_with('{') {
        true => "{".to_owned(),
        false => rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect(),
    };
    code.split(prefix).skip(1).map(segment).collect()
}

#[test]
fn planted_faults_are_found() {
    let table = [
        (
            "cache/store.rs",
            "use crate::codec::Json;",
            "cache may not name codec",
        ),
        (
            "api/mod.rs",
            "use super::config::Config;",
            "api may not name config",
        ),
        (
            "shutdown.rs",
            "use super::net::Peer;",
            "shutdown may not name net",
        ),
        (
            "cache/mod.rs",
            "fn f(_: hyper::Request) {}",
            "cache may not name hyper",
        ),
        (
            "codec/json.rs",
            "use tokio::sync::watch;",
            "codec may not name tokio",
        ),
        (
            "cache/log.rs",
            "use tokio::net::TcpStream;",
            "cache may not name tokio::net",
        ),
        (
            "net/tls.rs",
            "use crate::{shutdown, telemetry};",
            "crate::{…}: write one use a name",
        ),
        (
            "net/a/b.rs",
            "use super::super::api::Status;",
            "super::super: name the room",
        ),
        (
            "server/filters/limit.rs",
            "use crate::server::handlers::list;",
            "server/filters/ may not name ::handlers",
        ),
        ("other/mod.rs", "", "unknown room"),
    ];
    for (name, text, fault) in table {
        let found = faults_of(name, text);
        assert!(
            found.contains(&format!("{name}: {fault}")),
            "{name}: {found:?}"
        );
    }
    let long = "\n".repeat(MAX_LINES + 1);
    assert_eq!(faults_of("api/a.rs", &long).len(), 1);
}

#[test]
fn what_is_allowed_is_not_a_fault() {
    let table = [
        (
            "net/tls.rs",
            "use crate::shutdown::Shutdown;\nuse crate::net::Error;",
        ),
        (
            "codec/json.rs",
            "// crate::net, tokio::sync\nuse crate::api::Object;",
        ),
        (
            "server/mod.rs",
            "use crate::net::tls; use hyper::body::Body;",
        ),
        (
            "cache/mod.rs",
            "use my_hyper::x; use crate::cache::hyper::y;",
        ),
        (
            "net/a/b.rs",
            "#[cfg(test)]\nmod tests {\n use crate::server::Server;\n}",
        ),
    ];
    for (name, text) in table {
        assert_eq!(faults_of(name, text), Vec::<String>::new(), "{name}");
    }
}
