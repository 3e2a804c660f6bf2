//! Tables of shard selectors: the cases of the API server's own tests, its messages, and hashes.

use bytes::Bytes;

use super::{ShardSelector, ShardSelectorError, hash};
use crate::api::{Object, ObjectKey, ObjectValues, ResourceVersion, Selection};

fn parse(text: &str) -> Result<String, String> {
    let parsed = ShardSelector::parse(text);
    parsed
        .map(|shard| shard.to_string())
        .map_err(|error| match error {
            ShardSelectorError::Invalid(problem) => problem,
            ShardSelectorError::NotRead => "not read".to_owned(),
        })
}

fn range(field: &str, start: &str, end: &str) -> String {
    format!("shardRange(object.metadata.{field}, '0x{start:0>16}', '0x{end:0>16}')")
}

/// Computed with `hash/fnv` of Go, which the API server uses.
#[test]
fn hashes_are_those_of_the_api_server() {
    for (value, expected) in [
        ("", 0xcbf29ce484222325),
        ("abc", 0xe71fa2190541574b),
        ("test", 0xf9e6e6ef197c2b25),
        ("different", 0x88f38c6c33321162),
        ("default", 0xebada5168620c5fe),
        ("test-uid-12345", 0xd4c53b72f9287c28),
        ("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", 0x93754b7248a00eb9),
    ] {
        assert_eq!(hash(value), expected, "{value}");
    }
}

#[test]
fn selectors_are_printed_in_one_form() {
    let (half, whole) = ("8000000000000000", "10000000000000000");
    let first = range("uid", "0", half);
    let second = range("uid", half, whole);
    let third = range("uid", "5", "a");
    let both = format!("{first} || {second}");
    for (text, expected) in [
        (first.clone(), &first),
        (second.clone(), &second),
        (range("uid", "0", whole), &range("uid", "0", whole)),
        (
            range("namespace", "aa", "ff"),
            &range("namespace", "aa", "ff"),
        ),
        (both.clone(), &both),
        (format!("({first}) || (({second}))"), &both),
        (format!("({first}||\n{second})"), &both),
        (
            format!("{second} || {third} || {first}"),
            &format!("{second} || {third} || {first}"),
        ),
        (first.replace(' ', ""), &first),
        (first.replace(' ', " \t\n").replace('(', " ( "), &first),
        (first.replace('\'', "\""), &first),
        (first.replace('.', " . "), &first),
    ] {
        assert_eq!(parse(&text).as_ref(), Ok(expected), "{text}");
    }
}

#[test]
fn refusals_have_the_words_of_the_api_server() {
    let uid = |arguments: &str| format!("shardRange(object.metadata.uid, {arguments})");
    let full = "'0x8000000000000000'";
    let supported = "supported: object.metadata.uid, object.metadata.namespace";
    for (text, expected) in [
        (
            "  ".to_owned(),
            "empty shard selector is not allowed; omit the parameter for unfiltered lists"
                .to_owned(),
        ),
        (
            uid(&format!("'0000000000000000', {full}")),
            "hexStart must have '0x' prefix, got \"0000000000000000\"".to_owned(),
        ),
        (
            uid(&format!("{full}, '8000000000000000'")),
            "hexEnd must have '0x' prefix, got \"8000000000000000\"".to_owned(),
        ),
        (
            uid(&format!("'0x', {full}")),
            "hexStart: hex value is required after '0x'".to_owned(),
        ),
        (
            "shardRange(object.metadata.name, '0x00', '0x80')".to_owned(),
            format!("unsupported field path \"object.metadata.name\"; {supported}"),
        ),
        (
            "invalidFunc(object.metadata.uid, '0x00', '0x80')".to_owned(),
            "unsupported function \"invalidFunc\"; only shardRange() and || are allowed".to_owned(),
        ),
        (
            uid("'0x000000000000000000', '0x80'"),
            "hexStart: hex value too long (18 chars, max 17): \"000000000000000000\"".to_owned(),
        ),
        (
            uid("'0x0g', '0x80'"),
            "hexStart: invalid hex character \"g\" in \"0x0g\"".to_owned(),
        ),
        (
            uid("'0x0F', '0x80'"),
            "hexStart: invalid hex character \"F\" in \"0x0F\"".to_owned(),
        ),
        (
            uid("'0xé', '0x80'"),
            "hexStart: invalid hex character \"é\" in \"0xé\"".to_owned(),
        ),
        (
            uid("'0x10000000000000001', '0x80'"),
            "hexStart: 17-digit hex value must be '0x10000000000000000' (2^64), got \
             \"0x10000000000000001\""
                .to_owned(),
        ),
        (
            uid(&format!("{full}, '0xff'")),
            "hexEnd must be a 0x-prefixed 16-digit hex value, got \"0xff\" (did you mean \
             \"0x00000000000000ff\"?)"
                .to_owned(),
        ),
        (
            "shardRange()".to_owned(),
            "shardRange() requires exactly 3 arguments, got 0".to_owned(),
        ),
        (
            uid("'0x0'"),
            "shardRange() requires exactly 3 arguments, got 2".to_owned(),
        ),
        (
            uid(&format!("{full}, {full}")),
            "shard range start 0x8000000000000000 must be less than end 0x8000000000000000"
                .to_owned(),
        ),
        (
            uid("'0x10000000000000000', '0x0000000000000000'"),
            "shard range start 0x10000000000000000 must be less than end 0x0000000000000000"
                .to_owned(),
        ),
        (
            format!(
                "{} || {}",
                range("uid", "0", "1"),
                range("namespace", "0", "1")
            ),
            "all shard ranges must use the same field, got \"object.metadata.uid\" and \
             \"object.metadata.namespace\""
                .to_owned(),
        ),
    ] {
        assert_eq!(parse(&text), Err(expected), "{text}");
    }
}

/// What is no CEL, or what the API server perhaps reads and kubefan does not.
#[test]
fn other_texts_are_not_read() {
    let one = range("uid", "0", "1");
    for text in [
        "foo".to_owned(),
        "'x'".to_owned(),
        "object.metadata.uid > '0x0'".to_owned(),
        format!("{one} && {one}"),
        format!("{one} | {one}"),
        format!("{one} ||"),
        format!("|| {one}"),
        format!("({one}"),
        format!("{one})"),
        format!("{}{one}{}", "(".repeat(40), ")".repeat(40)),
        format!("{one} {one}"),
        format!("{one} // a comment"),
        one.replace(')', ",)"),
        one.replace(")", ""),
        one.replace("'0x", "'\\x30x"),
        one.replace("'0x", "r'0x"),
        one.replace("object.", "object..").to_owned(),
        one.replace("object.metadata.uid", "hex(0)"),
        one.replace("object.metadata.uid", "object['metadata']"),
        one.replace("object.metadata.uid", "'object.metadata.uid'"),
        "shardRange(object.metadata.uid, 0, 8)".to_owned(),
        "shardRange(object.metadata.uid, object, object)".to_owned(),
        "shardRange".to_owned(),
        "shardRange(object.metadata.uid, '0x".to_owned(),
        "é".to_owned(),
    ] {
        let error = ShardSelector::parse(&text).expect_err(&text);
        assert_eq!(error, ShardSelectorError::NotRead, "{text}");
    }
}

#[test]
fn each_object_belongs_to_one_of_four_shards() {
    let object = |name: &str, uid: &str| {
        let values = ObjectValues {
            uid: uid.into(),
            ..ObjectValues::default()
        };
        let key = ObjectKey::new(Some("test"), name);
        Object::new(key, ResourceVersion(1), &values, Bytes::new())
    };
    let ends = ["0", "4", "8", "c", "10"].map(|digit| format!("{digit}000000000000000"));
    let shards = |field: &str| -> Vec<_> {
        let ranges = ends.windows(2).map(|ends| range(field, &ends[0], &ends[1]));
        let parsed = ranges.map(|text| ShardSelector::parse(&text).expect("a selector"));
        parsed
            .map(|shard| Selection {
                shard: Some(shard),
                ..Selection::default()
            })
            .collect()
    };
    let by_uid = shards("uid");
    let mut counts = [0; 4];
    for number in 0..1_000 {
        // As varied as the uids of real objects.
        let uid = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128.wrapping_mul(number);
        let object = object("o", &format!("{uid:032x}"));
        let found: Vec<_> = (0..4).filter(|at| by_uid[*at].matches(&object)).collect();
        assert_eq!(found.len(), 1, "{number}");
        counts[found[0]] += 1;
    }
    assert!(counts.iter().all(|count| *count > 150), "{counts:?}");
    // The hash of `test` begins with f.
    let found = shards("namespace");
    let found = found.iter().map(|shard| shard.matches(&object("o", "x")));
    assert_eq!(found.collect::<Vec<_>>(), [false, false, false, true]);
    // A start is in its range, an end is not.
    let exactly = |start: u64, end: u64| {
        let text = range("uid", &format!("{start:x}"), &format!("{end:x}"));
        ShardSelector::parse(&text).expect("a selector")
    };
    let (object, hash) = (object("o", "abc"), hash("abc"));
    assert!(exactly(hash, hash + 1).matches(&object));
    assert!(!exactly(hash - 1, hash).matches(&object));
}

/// The ranges of selectors, and those in which a hash is looked up.
#[test]
fn ranges_are_merged_for_matching_only() {
    for (ranges, expected) in [
        (vec![("5", "a")], vec![(5, 9)]),
        (vec![("5", "a"), ("a", "f")], vec![(5, 14)]),
        (vec![("5", "a"), ("b", "f")], vec![(5, 9), (11, 14)]),
        (
            vec![("b", "f"), ("5", "a"), ("5", "a")],
            vec![(5, 9), (11, 14)],
        ),
        (vec![("5", "f"), ("6", "8"), ("e", "10")], vec![(5, 15)]),
        (
            vec![("1", "10000000000000000"), ("0", "2")],
            vec![(0, u64::MAX)],
        ),
        (
            vec![("ffffffffffffffff", "10000000000000000"), ("0", "1")],
            vec![(0, 0), (u64::MAX, u64::MAX)],
        ),
    ] {
        let calls: Vec<_> = ranges
            .iter()
            .map(|(start, end)| range("uid", start, end))
            .collect();
        let text = calls.join(" || ");
        let shard = ShardSelector::parse(&text).expect("a selector");
        let found = shard
            .merged
            .iter()
            .map(|range| (*range.start(), *range.end()));
        assert_eq!(found.collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(shard.to_string(), text);
    }
    // An object matches in each of several ranges, and not between them.
    let object = |uid: &str| {
        let values = ObjectValues {
            uid: uid.into(),
            ..ObjectValues::default()
        };
        let key = ObjectKey::new(None, "o");
        Object::new(key, ResourceVersion(1), &values, Bytes::new())
    };
    let around = |uid: &str| {
        let hash = hash(uid);
        range("uid", &format!("{hash:x}"), &format!("{:x}", hash + 1))
    };
    let uids = ["test", "different", "default"];
    let text = uids.map(around).join(" || ");
    let shard = ShardSelector::parse(&text).expect("a selector");
    for uid in uids {
        assert!(shard.matches(&object(uid)), "{uid}");
    }
    for uid in ["", "abc", "test-uid-12345"] {
        assert!(!shard.matches(&object(uid)), "{uid}");
    }
}
