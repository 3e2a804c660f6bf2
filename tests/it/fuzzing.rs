//! Checks the properties of the fuzz targets on their seeds, on damaged copies of the seeds, and on
//! generated inputs, so that `cargo test` covers them without a fuzzer.

use std::collections::BTreeMap;
use std::fs;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::repository::{document, read, root};

#[allow(unreachable_pub, reason = "public in the crate of the fuzz targets")]
#[path = "../../fuzz/src/properties/mod.rs"]
mod properties;

/// A fuzz target: its name, its property, and the words for generating its inputs.
type Target = (&'static str, fn(&[u8]), &'static [&'static str]);

const TARGETS: [Target; 12] = [
    (
        "accept",
        properties::accept,
        &[
            "application/",
            "json",
            "yaml",
            "vnd.kubernetes.protobuf",
            "*",
            "/",
            ",",
            ";",
            "=",
            " ",
            "q=0.5",
            "as=Table",
            "v=v1",
            "g=meta.k8s.io",
            "stream=watch",
            "pretty=1",
            "text/html",
            "as=PartialObjectMetadata",
            "as=PartialObjectMetadataList",
        ],
    ),
    (
        "continue_token",
        properties::continue_token,
        &[
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEi",
            "LCJydiI6",
            "MSwic3RhcnQiOiIv",
            "In0",
            "a",
            "-",
            "_",
            "=",
            "/",
        ],
    ),
    (
        "field_selector",
        properties::field_selector,
        &[
            "metadata.name",
            "spec.nodeName",
            "=",
            "==",
            "!=",
            ",",
            "\\",
            "!",
            "a",
            "é",
            " ",
        ],
    ),
    (
        "http2_frames",
        properties::http2_frames,
        &[
            "\0\0\0",
            "\0\0\x04",
            "\0\0\x06",
            "\x01\x04",
            "\x01\x05",
            "\x03\0",
            "\x04\0",
            "\x04\x01",
            "\x08\0",
            "\0\x01",
            "\0\0\0\x01",
            "\0\0\0\x03",
            "\0\x04",
            "\x7f",
        ],
    ),
    (
        "label_selector",
        properties::label_selector,
        &[
            "a", "b/", "in", "notin", " ", "(", ")", ",", "=", "==", "!", "!=", "<", ">", "5", "-",
            "\0", "é",
        ],
    ),
    (
        "list_options",
        properties::list_options,
        &[
            "limit",
            "watch",
            "labelSelector",
            "fieldSelector",
            "resourceVersion",
            "Match",
            "continue",
            "sendInitialEvents",
            "allowWatchBookmarks",
            "timeoutSeconds",
            "timeout",
            "pretty",
            "=",
            "&",
            ";",
            "%2C",
            "%",
            "+",
            "0",
            "7",
            "true",
            "Exact",
            "NotOlderThan",
            "a",
        ],
    ),
    (
        "load_frames",
        properties::load_frames,
        &[
            "\0\0",
            "\x01\x01",
            "\x02\x05",
            "\x03\0",
            "\0\0\0\x04",
            "{\"type\":\"MODIFIED\",\"object\":",
            "{",
            "}",
            "\n",
            "\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}",
            "\"resourceVersion\":\"",
            "\n\x05ADDED",
            "\x12",
            "k8s\0",
        ],
    ),
    (
        "object_json",
        properties::object_json,
        &[
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"",
            "\\",
            "\"metadata\":",
            "\"name\":\"a\"",
            "\"labels\":",
            "\"resourceVersion\":\"7\"",
            "\"items\":",
            "\"kind\":\"K\"",
            "null",
            "1",
            " ",
            "\n",
        ],
    ),
    (
        "object_protobuf",
        properties::object_protobuf,
        &[
            "k8s\0", "\n", "\x12", "\0", "\x01", "\x02", "\x06", "2", "Z", "a", "7", "\x7f",
        ],
    ),
    (
        "protobuf_to_json",
        properties::protobuf_to_json,
        &[
            "k8s\0\n\x09\n\x02v1\x12\x03Pod\x12",
            "k8s\0",
            "\n",
            "\x12",
            "\0",
            "\x01",
            "\x06",
            "2",
            "a",
            "\x7f",
        ],
    ),
    (
        "shard_selector",
        properties::shard_selector,
        &[
            "shardRange",
            "(",
            ")",
            ",",
            ".",
            "||",
            "'",
            "\"",
            "object.metadata.uid",
            "object.metadata.namespace",
            "0x0000000000000000",
            "0x8000000000000000",
            "0x10000000000000000",
            "0x",
            "f",
            " ",
            "é",
        ],
    ),
    (
        "watch_frames",
        properties::watch_frames,
        &[
            "\0\0",
            "\x01\x01",
            "\x02\x05",
            "\0\0\0\x04",
            "{\"type\":\"ADDED\",\"object\":",
            "{",
            "}",
            "\n",
            "\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}",
            "BOOKMARK",
            "ERROR",
            "\n\x05ADDED",
            "\x12",
        ],
    ),
];

#[test]
fn every_target_is_named_everywhere() {
    let targets: Vec<_> = TARGETS
        .iter()
        .map(|(name, ..)| (*name).to_owned())
        .collect();
    let below = |folder: &str| {
        let entries = fs::read_dir(root().join("fuzz").join(folder)).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").path());
        let mut names: Vec<_> = names
            .map(|path| {
                path.file_stem()
                    .expect("a name")
                    .to_str()
                    .expect("text")
                    .to_owned()
            })
            .collect();
        names.sort();
        names
    };
    assert_eq!(below("fuzz_targets"), targets);
    assert_eq!(below("corpus"), targets);
    let manifest = read(&root().join("fuzz/Cargo.toml"));
    let contributing = document("CONTRIBUTING.md");
    for target in &targets {
        assert!(
            manifest.contains(&format!("name = \"{target}\"")),
            "{target}"
        );
        assert!(contributing.contains(&format!("`{target}`")), "{target}");
    }
}

#[test]
fn properties_hold_for_the_seeds() {
    for (name, property, _) in TARGETS {
        let seeds = seeds(name);
        assert!(seeds.len() >= 10, "{name} has {} seeds", seeds.len());
        for (seed, bytes) in seeds {
            println!("{name}/{seed}"); // shown when the property fails
            property(&bytes);
        }
    }
}

#[test]
fn properties_hold_for_damaged_seeds() {
    for (name, property, words) in TARGETS {
        let seeds: Vec<_> = seeds(name).into_values().collect();
        let damage = (any::<Index>(), any::<Index>(), select(words), any::<u8>());
        let case = (select(seeds), vec(damage, 0..4));
        check_property(
            name,
            property,
            case.prop_map(|(mut bytes, damages)| {
                for (from, to, word, byte) in damages {
                    damage_one(&mut bytes, from, to, word, byte);
                }
                bytes
            }),
        );
    }
}

#[test]
fn properties_hold_for_inputs_of_grammar_words() {
    for (name, property, words) in TARGETS {
        check_property(
            name,
            property,
            vec(select(words), 0..12).prop_map(|words| words.concat().into_bytes()),
        );
    }
}

#[test]
fn properties_hold_for_arbitrary_bytes() {
    for (name, property, _) in TARGETS {
        check_property(name, property, vec(any::<u8>(), 0..64));
    }
}

fn check_property(name: &str, property: fn(&[u8]), inputs: impl Strategy<Value = Vec<u8>>) {
    let config = Config {
        cases: Config::default().cases.max(500),
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&inputs, |bytes| {
        let held = std::panic::catch_unwind(|| property(&bytes));
        held.map_err(|_| TestCaseError::fail("the property does not hold"))
    });
    result.unwrap_or_else(|fault| panic!("{name}: {fault}"));
}

/// Damages `bytes` in one of four ways, chosen by `byte`: replaces the range between two positions
/// by a word, inserts a word, truncates, or changes one byte.
fn damage_one(bytes: &mut Vec<u8>, from: Index, to: Index, word: &str, byte: u8) {
    let (from, to) = (from.index(bytes.len() + 1), to.index(bytes.len() + 1));
    match byte % 4 {
        0 => drop(bytes.splice(from.min(to)..from.max(to), word.bytes())),
        1 => drop(bytes.splice(from..from, word.bytes())),
        2 => bytes.truncate(from),
        _ => {
            if let Some(changed) = bytes.get_mut(from) {
                *changed = byte;
            }
        }
    }
}

/// Returns the seeds of a target that are checked in, by name. Inputs that a fuzzer has added to
/// the folder are left out; their names are hashes of 40 characters.
fn seeds(target: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = root().join("fuzz/corpus").join(target);
    let entries = fs::read_dir(folder).expect("a folder of seeds");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .map(|path| {
            let name = path
                .file_name()
                .expect("a name")
                .to_str()
                .expect("text")
                .to_owned();
            (name, fs::read(&path).expect("a seed"))
        })
        .filter(|(name, _)| name.len() < 40)
        .collect()
}
