//! The dependencies of a program that uses the library alone: there is no server among them.

use crate::repository::document;

/// Crates that the proxy names, and that the library's clients need as well.
const OF_CLIENTS: [&str; 4] = ["aws-lc-rs", "ipnet", "rustix", "socket2"];
/// Servers that no feature names.
const SERVERS: [&str; 5] = ["actix-web", "axum", "tiny_http", "tonic", "warp"];

/// The crates that the features `proxy` and `tools` turn on.
fn optional() -> Vec<String> {
    let manifest = document("Cargo.toml");
    let names = manifest.split("\"dep:").skip(1);
    let names = names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    names.collect()
}

#[test]
fn a_program_with_the_library_alone_has_no_server() {
    let lock = document("tests/library/Cargo.lock");
    let has = |name: &str| lock.contains(&format!("\nname = \"{name}\"\n"));
    assert!(has("kubefan") && has("kube"));
    let optional = optional();
    assert!(optional.len() > 10, "{optional:?}");
    for name in OF_CLIENTS {
        assert!(
            optional.iter().any(|known| known == name) && has(name),
            "{name}"
        );
    }
    let servers = optional.iter().map(String::as_str).chain(SERVERS);
    let found: Vec<_> = servers
        .filter(|name| !OF_CLIENTS.contains(name) && has(name))
        .collect();
    assert!(found.is_empty(), "the library depends on {found:?}");
}
