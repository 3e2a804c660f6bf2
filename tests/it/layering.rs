//! Checks that the rooms of `src` depend on each other only as the table in ARCHITECTURE.md allows.
//!
//! The test searches the sources as text. So a path like `crate::net` in a string or in a block
//! comment counts as a use, and must be reworded. Paths that macros generate are not found.

use std::collections::BTreeSet;
use std::path::Path;

use crate::repository::read;
use crate::repository::root;
use crate::repository::rust_files;

use Set::Library;
use Set::Proxy;
use Set::Tools;

/// The set of features that a room is in; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Set {
    Library,
    Proxy,
    Tools,
}

/// (set, room, rooms that it may name). A room may name only rooms above it, so there are no
/// cycles. It may name no room of a later set.
pub(crate) const ROOMS: &[(Set, &str, &str)] = &[
    (Library, "shutdown", ""),
    (Library, "telemetry", ""),
    (Library, "concurrency", ""),
    (Library, "body", "concurrency"),
    (Library, "mutation", ""),
    (Library, "api", ""),
    (Library, "scheme", "api"),
    (Library, "codec", "api"),
    (Library, "cache", "telemetry concurrency mutation api"),
    (Library, "upstream", "telemetry body api codec"),
    (
        Library,
        "informer",
        "shutdown telemetry concurrency mutation api codec cache upstream",
    ),
    (
        Library,
        "shared_informer",
        "shutdown concurrency api cache upstream informer",
    ),
    (Library, "work_queue", "telemetry"),
    (
        Library,
        "delta_fifo",
        "api cache upstream informer work_queue",
    ),
    (
        Library,
        "controller",
        "shutdown telemetry api shared_informer work_queue",
    ),
    (Library, "leader_election", "shutdown telemetry"),
    (Library, "event_recorder", "shutdown"),
    (
        Library,
        "manager",
        "shutdown telemetry shared_informer work_queue controller leader_election",
    ),
    (
        Library,
        "fake_source",
        "shutdown api codec cache upstream informer shared_informer",
    ),
    (Proxy, "ledger", "telemetry"),
    (Proxy, "net", "shutdown telemetry ledger"),
    (
        Proxy,
        "identity",
        "shutdown telemetry concurrency body api cache upstream informer net",
    ),
    (Proxy, "audit", "telemetry"),
    (
        Proxy,
        "server",
        "shutdown telemetry concurrency body api codec cache upstream informer ledger net identity audit",
    ),
    (
        Proxy,
        "config",
        "shutdown telemetry api cache upstream informer ledger net identity server",
    ),
    (
        Proxy,
        "app",
        "shutdown telemetry api codec cache upstream informer ledger net identity audit server config",
    ),
    (Proxy, "process", "shutdown telemetry config"),
    (Tools, "tools/workload", ""),
    (
        Tools,
        "tools/sim",
        "shutdown telemetry api codec cache net server",
    ),
    (
        Tools,
        "simulator",
        "shutdown telemetry api net server tools/sim",
    ),
    (Tools, "tools/load", "shutdown body api upstream"),
    (
        Tools,
        "tools/agents",
        "shutdown body api upstream tools/load",
    ),
    (Tools, "tools/config", "api upstream config tools/load"),
    (
        Tools,
        "tools/app",
        "shutdown telemetry api informer ledger net identity server config app tools/workload tools/sim tools/agents tools/config",
    ),
    (
        Tools,
        "tools/commands",
        "shutdown config process tools/load tools/config tools/app",
    ),
    (Tools, "tools", "config process tools/commands"),
    (
        Proxy,
        "commands",
        "shutdown telemetry net config app process tools",
    ),
];

/// The only exception: a room that may name a room of a later set. Without the tools, `lib.rs`
/// includes an empty room `tools` instead.
const DOOR: (&str, &str) = ("commands", "tools");

/// (crate or path, the rooms that may name it). No other room may name it.
const RESTRICTED_NAMES: &[(&str, &str)] = &[
    ("bytesize", "config"),
    ("clap", "config commands tools/config tools/commands tools"),
    ("clap_complete", "commands"),
    ("humantime", "config"),
    ("hyper", "net upstream server tools/sim"),
    ("hyper_util", "net upstream server"),
    (
        "k8s_openapi",
        "controller leader_election event_recorder tools/workload",
    ),
    (
        "kube",
        "scheme upstream shared_informer controller leader_election event_recorder manager fake_source simulator",
    ),
    (
        "prometheus",
        "telemetry ledger net identity cache upstream informer work_queue controller leader_election audit server app",
    ),
    ("rcgen", "net"),
    ("rustls", "net identity upstream"),
    ("schemars", "config"),
    (
        "tokio",
        "shutdown telemetry concurrency body ledger net identity cache upstream informer shared_informer work_queue delta_fifo controller leader_election event_recorder manager fake_source audit server app process tools/sim simulator tools/load tools/agents tools/app tools/commands",
    ),
    ("tokio::net", "net upstream app simulator"),
    ("x509_parser", "net identity"),
];

/// Forbidden dependencies inside a room: (start of the file's path, path that it may not name).
/// They ensure that a request passes through the server in one direction: the decision does not
/// depend on acquiring, proving and answering, and making bodies depends on neither reads nor
/// forwarding.
const FORBIDDEN_NEIGHBOURS: &[(&str, &str)] = &[
    ("server/filters/", "::read::"),
    ("server/request/", "::decide"),
    ("server/decide", "::acquire"),
    ("server/decide", "::deliver"),
    ("server/acquire", "::prove"),
    ("server/prove", "::read::"),
    ("server/read/", "::forward"),
    ("server/deliver/", "::read::"),
    ("server/deliver/", "::forward"),
    ("server/forward/", "::read::"),
];

/// The longest file in lines, without its tests.
const MAX_LINES: usize = 600;

#[test]
fn the_table_has_no_cycles() {
    for (i, (_, room, may)) in ROOMS.iter().enumerate() {
        let above: Vec<_> = ROOMS[..i].iter().map(|(_, room, _)| *room).collect();
        for named in may.split_whitespace() {
            assert!(above.contains(&named), "{named} is not above {room}");
        }
    }
}

#[test]
fn no_room_names_one_of_a_later_set() {
    for (set, room, may) in ROOMS {
        for named in may.split_whitespace() {
            let known = ROOMS.iter().find(|(_, known, _)| *known == named);
            let is_allowed = known.is_some_and(|(of, _, _)| of <= set) || (*room, named) == DOOR;
            assert!(is_allowed, "{room} is in {set:?} and names {named}");
        }
    }
}

#[test]
fn only_the_crate_root_names_features() {
    for file in rust_files(&root().join("src")) {
        let has_no_feature_cfg =
            file.ends_with("src/lib.rs") || !read(&file).contains("cfg(feature");
        assert!(has_no_feature_cfg, "{} has a cfg(feature)", file.display());
    }
}

#[test]
fn restricted_names_are_used_only_in_their_rooms() {
    let src = root().join("src");
    let mut violations = Vec::new();
    for file in rust_files(&src) {
        let name = file.strip_prefix(&src).unwrap().to_str().unwrap();
        let is_root = matches!(name, "main.rs" | "lib.rs" | "internals.rs");
        if !is_root && !is_test(name) {
            violations.extend(violations_in(name, &read(&file)));
        }
    }
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn every_room_of_the_table_exists() {
    let src = root().join("src");
    let is_there = |room: &str| src.join(room).is_dir() || src.join(format!("{room}.rs")).is_file();
    for (_, room, _) in ROOMS {
        assert!(is_there(room), "{room} has no folder or file in src");
    }
}

/// True for a file with tests: it is called `tests.rs` or is in a folder `tests`.
fn is_test(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

/// The violations in one file; `name` is its path below src.
fn violations_in(name: &str, text: &str) -> Vec<String> {
    let room = room_of(name);
    let Some((_, _, may)) = ROOMS.iter().find(|(_, known, _)| *known == room) else {
        return vec![format!("{name}: unknown room")];
    };
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code = code_of(name, room, text);
    let mut violations = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        violations.push(format!("{lines} lines, more than {MAX_LINES}"));
    }
    if code.contains("super::super") {
        violations.push("super::super: name the room".to_owned());
    }
    for named in rooms_in(&code) {
        if named == "{" {
            violations.push("crate::{…}: write one use a name".to_owned());
        } else if named != room && !allows(may, &named) {
            violations.push(format!("{room} may not name {named}"));
        }
    }
    for (outsider, rooms) in RESTRICTED_NAMES {
        if names(&code, outsider) && !allows(rooms, room) {
            violations.push(format!("{room} may not name {outsider}"));
        }
    }
    for (folder, path) in FORBIDDEN_NEIGHBOURS {
        if name.starts_with(folder) && code.contains(path) {
            violations.push(format!("{folder} may not name {path}"));
        }
    }
    violations
        .iter()
        .map(|fault| format!("{name}: {fault}"))
        .collect()
}

/// The room of a file. A file in `tools/sim` belongs to that room, and the files directly in
/// `tools` to the room `tools`.
fn room_of(name: &str) -> &str {
    let ends: Vec<usize> = name.match_indices(['/', '.']).map(|(at, _)| at).collect();
    match name {
        "tools/none.rs" | "tools/mod.rs" => "tools",
        _ if name.starts_with("tools/") => &name[..ends[1]],
        _ => &name[..ends[0]],
    }
}

/// The rooms that a file names with paths from the crate's root; `{` if it names a group like
/// `crate::{a, b}`.
fn rooms_in(code: &str) -> BTreeSet<String> {
    let mut rooms = names_after(code, "crate::");
    if rooms.remove("tools") {
        let is_plain = |rest: &str| !rest.starts_with("::");
        let is_room = |below: &String| {
            ROOMS
                .iter()
                .any(|(_, known, _)| known == &format!("tools/{below}"))
        };
        let below = names_after(code, "crate::tools::");
        if code.split("crate::tools").skip(1).any(is_plain) || !below.iter().all(is_room) {
            rooms.insert("tools".to_owned());
        }
        rooms.extend(
            below
                .iter()
                .filter(|below| is_room(below))
                .map(|below| format!("tools/{below}")),
        );
    }
    rooms
}

/// The text of a file without line comments. In a room's top module, `super::` is replaced by the
/// equivalent path from the crate's root.
fn code_of(name: &str, room: &str, text: &str) -> String {
    let uncommented: Vec<_> = text
        .lines()
        .map(|line| line.split("//").next().unwrap())
        .collect();
    let code = uncommented.join("\n");
    if name == format!("{room}/mod.rs") && room.starts_with("tools/") {
        return code.replace("super::", "crate::tools::");
    }
    if Path::new(name).components().count() == 1 || name == format!("{room}/mod.rs") {
        return code.replace("super::", "crate::");
    }
    code
}

fn allows(rooms: &str, room: &str) -> bool {
    rooms.split_whitespace().any(|allowed| allowed == room)
}

/// True if the code contains the path `outsider::`, and not as the end of a longer name.
fn names(code: &str, outsider: &str) -> bool {
    let path = format!("{outsider}::");
    code.match_indices(&path).any(|(at, _)| {
        !code[..at].ends_with(|before: char| before.is_alphanumeric() || "_:".contains(before))
    })
}

/// The first path segment after each `prefix` in the code; `{` for a group.
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
fn planted_violations_are_found() {
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
            "use crate::server::read::list;",
            "server/filters/ may not name ::read::",
        ),
        (
            "tools/load/run.rs",
            "use crate::tools::sim::Simulator;",
            "tools/load may not name tools/sim",
        ),
        (
            "tools/sim/mod.rs",
            "use super::load;",
            "tools/sim may not name tools/load",
        ),
        (
            "server/mod.rs",
            "use crate::tools;",
            "server may not name tools",
        ),
        (
            "upstream/mod.rs",
            "use crate::net::Listener;",
            "upstream may not name net",
        ),
        ("other/mod.rs", "", "unknown room"),
        ("tools/other.rs", "", "unknown room"),
    ];
    for (name, text, fault) in table {
        let found = violations_in(name, text);
        assert!(
            found.contains(&format!("{name}: {fault}")),
            "{name}: {found:?}"
        );
    }
    let long = "\n".repeat(MAX_LINES + 1);
    assert_eq!(violations_in("api/a.rs", &long).len(), 1);
}

#[test]
fn allowed_names_are_not_violations() {
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
            "tools/commands/load.rs",
            "use crate::tools::commands::demo; use crate::tools::load;",
        ),
        ("commands/mod.rs", "use crate::tools::Command;"),
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
        assert_eq!(violations_in(name, text), Vec::<String>::new(), "{name}");
    }
}
