//! Checks what Cargo does not: that the rooms of a crate depend on each other in one direction.
//!
//! The test searches the sources as text. So a path like `crate::net` in a string or in a block
//! comment counts as a use, and must be reworded. Paths that macros generate are not found.

use std::collections::BTreeSet;

use crate::repository::{read, root, rust_files};

/// Each crate and its rooms. A room may name only the rooms before it.
pub(crate) const CRATES: &[(&str, &[&str])] = &[
    (
        "core",
        &[
            "shutdown",
            "telemetry",
            "concurrency",
            "body",
            "mutation",
            "api",
            "cache",
            "codec",
            "upstream",
            "informer",
        ],
    ),
    (
        "library",
        &[
            "scheme",
            "shared_informer",
            "work_queue",
            "delta_fifo",
            "controller",
            "leader_election",
            "event_recorder",
            "manager",
            "fake_source",
        ],
    ),
    (
        "proxy",
        &[
            "text",
            "limit",
            "ledger",
            "bill",
            "net",
            "identity",
            "line_log",
            "traces",
            "server",
            "config",
            "app",
            "process",
            "admin_client",
        ],
    ),
    (
        "tools",
        &[
            "workload",
            "sim",
            "simulator",
            "load",
            "agents",
            "config",
            "app",
            "commands",
        ],
    ),
    ("top", &["text", "pages", "tables", "screen", "command"]),
];

/// Forbidden names: (start of the file's path below `src`, path that it may not name). A request passes
/// through the server in one direction: the decision does not depend on acquiring, proving and
/// answering, and making bodies depends on neither reads nor forwarding. Values and parsers need no
/// runtime and no other room, and connections know nothing about Kubernetes.
const FORBIDDEN: &[(&str, &str)] = &[
    ("core/api/", "tokio::"),
    ("core/api/", "crate::concurrency"),
    ("core/api/", "crate::body"),
    ("core/api/", "crate::telemetry"),
    ("core/api/", "crate::shutdown"),
    ("core/codec/", "tokio::"),
    ("core/codec/", "crate::cache"),
    ("core/codec/", "crate::concurrency"),
    ("core/codec/", "crate::body"),
    ("core/codec/", "crate::telemetry"),
    ("core/codec/", "crate::shutdown"),
    ("proxy/net/", "kubefan_core::api"),
    ("proxy/net/", "kubefan_core::cache"),
    ("proxy/net/", "kubefan_core::codec"),
    ("proxy/net/", "kubefan_core::upstream"),
    ("proxy/net/", "kubefan_core::informer"),
    ("proxy/server/filters/", "::read::"),
    ("proxy/server/request/", "::decide"),
    ("proxy/server/decide", "::acquire"),
    ("proxy/server/decide", "::deliver"),
    ("proxy/server/cached/acquire", "::prove"),
    ("proxy/server/cached/prove", "::read::"),
    ("proxy/server/cached/read/", "::forward"),
    ("proxy/server/deliver/", "::read::"),
    ("proxy/server/deliver/", "::forward"),
    ("proxy/server/upstream/forward/", "::read::"),
];

/// The longest file in lines, without its tests.
const MAX_LINES: usize = 600;

#[test]
fn rooms_name_only_those_before_them() {
    let src = root().join("src");
    let mut violations = Vec::new();
    for file in rust_files(&src) {
        let name = file.strip_prefix(&src).unwrap().to_str().unwrap();
        if !name.ends_with("/tests.rs") && !name.contains("/tests/") {
            violations.extend(violations_in(name, &read(&file)));
        }
    }
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn the_table_has_the_modules_of_each_crate() {
    for (folder, rooms) in CRATES {
        let lib = read(&root().join("src").join(folder).join("lib.rs"));
        let modules = lib.lines().filter_map(|line| line.strip_suffix(';'));
        let modules =
            modules.filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "));
        let expected: BTreeSet<_> = rooms.iter().copied().collect();
        assert_eq!(modules.collect::<BTreeSet<_>>(), expected, "{folder}");
    }
}

/// Returns the violations in one file; `name` is its path below src.
fn violations_in(name: &str, text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut violations = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        violations.push(format!("{lines} lines, more than {MAX_LINES}"));
    }
    let uncommented = text.lines().map(|line| line.split("//").next().unwrap());
    let code = with_single_paths(&uncommented.collect::<Vec<_>>().join("\n"));
    if code.contains("super::super") {
        violations.push("super::super: name the room".to_owned());
    }
    for (start, path) in FORBIDDEN {
        if name.starts_with(start) && code.contains(path) {
            violations.push(format!("{path} is forbidden here"));
        }
    }
    let place = name.split_once('/');
    let rooms = place.and_then(|(folder, _)| CRATES.iter().find(|(known, _)| *known == folder));
    if let (Some((_, file)), Some((_, rooms))) = (place, rooms)
        && file != "lib.rs"
    {
        let room = file.split(['/', '.']).next().unwrap();
        let before = rooms.iter().take_while(|known| **known != room);
        let before: BTreeSet<_> = before.copied().chain([room]).collect();
        for named in rooms_in(&code, file) {
            if !before.contains(named) {
                violations.push(format!("{room} may not name {named}"));
            }
        }
    }
    let violations = violations.iter();
    violations.map(|fault| format!("{name}: {fault}")).collect()
}

/// The rooms that a file names with paths from the crate's root. In the top module of a room, `super`
/// is the root.
fn rooms_in<'a>(code: &'a str, file: &str) -> BTreeSet<&'a str> {
    let is_top =
        file.split('/').count() == 1 || file.ends_with("/mod.rs") && file.split('/').count() == 2;
    let separators: &[&str] = if is_top {
        &["crate::", "super::"]
    } else {
        &["crate::"]
    };
    let paths = separators
        .iter()
        .flat_map(|start| code.split(*start).skip(1));
    paths.map(first_name).collect()
}

/// Replaces each list of a `use` declaration by the paths in it, each with `::` at its end.
fn with_single_paths(code: &str) -> String {
    let mut single = String::new();
    let mut declaration = String::new();
    for line in code.lines() {
        let is_use = line.trim_start().starts_with("use ") || line.contains(" use ");
        if declaration.is_empty() && !is_use {
            single.push_str(line);
            single.push('\n');
            continue;
        }
        declaration.push_str(line);
        if line.contains(';') {
            let (_, tree) = declaration.split_once("use ").unwrap();
            add_paths("", tree.split(';').next().unwrap(), &mut single);
            declaration.clear();
        }
    }
    single + &declaration
}

/// Adds the paths of a tree such as `a::{b, c::{d, e}}` to `single`, a line each.
fn add_paths(prefix: &str, tree: &str, single: &mut String) {
    let Some((start, list)) = tree.split_once('{') else {
        single.push_str(&format!("{prefix}{}::\n", tree.trim()));
        return;
    };
    let prefix = format!("{prefix}{}", start.trim());
    let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
    let mut depth = 0;
    let items = list.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for item in items.filter(|item| !item.trim().is_empty()) {
        add_paths(&prefix, item, single);
    }
}

fn first_name(path: &str) -> &str {
    path.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
        .unwrap()
}

#[test]
fn planted_violations_are_found() {
    let table = [
        (
            "core/cache/store.rs",
            "use crate::codec::Json;",
            Some("cache may not name codec"),
        ),
        (
            "core/api/mod.rs",
            "use super::cache::Config;",
            Some("api may not name cache"),
        ),
        (
            "core/shutdown.rs",
            "use super::api::Status;",
            Some("shutdown may not name api"),
        ),
        (
            "core/codec/json.rs",
            "use tokio::sync::watch;",
            Some("tokio:: is forbidden here"),
        ),
        (
            "proxy/net/a/b.rs",
            "use super::super::c::D;",
            Some("super::super: name the room"),
        ),
        (
            "proxy/server/filters/limit.rs",
            "use crate::server::read::list;",
            Some("::read:: is forbidden here"),
        ),
        (
            "tools/load/run.rs",
            "use crate::commands::Command;",
            Some("load may not name commands"),
        ),
        (
            "tools/sim/mod.rs",
            "use crate::{workload::{a, b}, load};",
            Some("sim may not name load"),
        ),
        (
            "proxy/server/cached/read/list.rs",
            "use crate::server::{\n    deliver::{self, Body},\n    upstream::{forward},\n};",
            Some("::forward is forbidden here"),
        ),
        (
            "proxy/server/filters/limit.rs",
            "use crate::server::cached::{prove, read};",
            Some("::read:: is forbidden here"),
        ),
        ("proxy/other/mod.rs", "use crate::net::Error;", None),
        (
            "proxy/server/tls.rs",
            "use crate::net::Error;\nuse super::api;",
            None,
        ),
        (
            "core/codec/json.rs",
            "// crate::informer, tokio::sync\nuse crate::api::Object;",
            None,
        ),
        (
            "proxy/net/b.rs",
            "#[cfg(test)]\nmod tests {\n use crate::server::Server;\n}",
            None,
        ),
        (
            "library/scheme/mod.rs",
            "use kubefan_core::api::Object;",
            None,
        ),
    ];
    for (name, text, fault) in table {
        let expected: Vec<_> = fault
            .iter()
            .map(|fault| format!("{name}: {fault}"))
            .collect();
        assert_eq!(violations_in(name, text), expected);
    }
    let long = "\n".repeat(MAX_LINES + 1);
    assert_eq!(violations_in("core/api/a.rs", &long).len(), 1);
}
