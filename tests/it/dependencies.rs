//! The dependencies of a program that uses the library alone: there is no server among them.

use std::collections::BTreeSet;

use crate::repository::document;

/// Crates that the program names, and that the library's clients need as well.
const OF_CLIENTS: [&str; 5] = [
    "ipnet",
    "pin-project-lite",
    "rustix",
    "socket2",
    "unicode-width",
];
/// Servers that no feature names.
const SERVERS: [&str; 5] = ["actix-web", "axum", "tiny_http", "tonic", "warp"];

/// Returns the names of the dependencies of the crate in `folder`.
fn dependencies(folder: &str) -> BTreeSet<String> {
    let manifest = document(&format!("{folder}/Cargo.toml"));
    let (_, rest) = manifest
        .split_once("\n[dependencies]\n")
        .expect("dependencies");
    let (list, _) = rest.split_once("\n\n").expect("their end");
    let names = list
        .lines()
        .filter_map(|line| line.split(['.', ' ']).next());
    names.map(str::to_owned).collect()
}

/// Returns the crates that only the proxy, the tools and the program name.
fn of_the_program() -> BTreeSet<String> {
    let names = ["src/proxy", "src/tools", "src/top", "."]
        .into_iter()
        .flat_map(dependencies);
    let of_the_library = &dependencies("src/core") | &dependencies("src/library");
    names
        .filter(|name| !of_the_library.contains(name))
        .collect()
}

#[test]
fn a_program_with_the_library_alone_has_no_server() {
    let lock = document("tests/library/Cargo.lock");
    let has = |name: &str| lock.contains(&format!("\nname = \"{name}\"\n"));
    assert!(has("kubefan") && has("kube"));
    let of_the_program = of_the_program();
    assert!(of_the_program.len() > 10, "{of_the_program:?}");
    for name in OF_CLIENTS {
        assert!(of_the_program.contains(name) && has(name), "{name}");
    }
    let servers = of_the_program.iter().map(String::as_str).chain(SERVERS);
    let found: Vec<_> = servers
        .filter(|name| !OF_CLIENTS.contains(name) && has(name))
        .collect();
    assert!(found.is_empty(), "the library depends on {found:?}");
}
