//! Compares indented JSON with recorded answers of an API server, and compacted again with its
//! input.

use proptest::prelude::*;
use serde_json::Value;

use crate::codec::json::compact;
use crate::codec::{Indenter, indented};

#[test]
fn indents_as_the_api_server() {
    let rows = [
        ("{}", "{}"),
        ("[]\n", "[]"),
        (" [ ] ", "[]"),
        ("7", "7"),
        ("{\"a\":[]}", "{\n  \"a\": []\n}"),
        (
            r#"{"a":{"b":[1,-2.5e3,{}]},"c":null}"#,
            "{\n  \"a\": {\n    \"b\": [\n      1,\n      -2.5e3,\n      {}\n    ]\n  },\n  \"c\": null\n}",
        ),
        (
            r#"{"{,:\"\\":"\\\"[]: ,\\","é":"\u003c  "}"#,
            "{\n  \"{,:\\\"\\\\\": \"\\\\\\\"[]: ,\\\\\",\n  \"é\": \"\\u003c  \"\n}",
        ),
        ("[[\"\"],true]", "[\n  [\n    \"\"\n  ],\n  true\n]"),
        (
            "{ \"a\" :\t1 ,\n\"b\": [\r\n] }",
            "{\n  \"a\": 1,\n  \"b\": []\n}",
        ),
    ];
    for (text, expected) in rows {
        let printed = indented(text.as_bytes());
        assert_eq!(String::from_utf8_lossy(&printed), expected, "{text}");
    }
}

#[test]
fn recorded_answers() {
    let recorded: [(&[u8], &[u8]); 2] = [
        (
            include_bytes!("../../../../../tests/golden/codec/get-pod.json"),
            include_bytes!("../../../../../tests/golden/codec/get-pod-pretty.json"),
        ),
        (
            include_bytes!("../../../../../tests/golden/codec/rich-pod-pom.json"),
            include_bytes!("../../../../../tests/golden/codec/rich-pod-pom-pretty.json"),
        ),
    ];
    for (plain, expected) in recorded {
        assert_eq!(
            String::from_utf8_lossy(&indented(plain)),
            String::from_utf8_lossy(expected)
        );
        assert_eq!(compact(expected), plain.trim_ascii_end());
    }
}

#[test]
fn depth_has_no_limit_and_invalid_json_is_harmless() {
    let deep = [[b'['; 500], [b']'; 500]].concat();
    assert_eq!(compact(&indented(&deep)), deep);
    for text in ["]]]}", "{\"a", "\"\\", "{]", ",:", "\u{feff}"] {
        assert_eq!(compact(&indented(text.as_bytes())), text.as_bytes());
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~é\\n\\\\\"{}\\[\\],:]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(("[a-z\"\\\\{,]{0,5}", inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn output_does_not_depend_on_piece_boundaries(value in json(), cuts in prop::collection::vec(1_usize..9, 1..8)) {
        let plain = value.to_string();
        let printed = indented(plain.as_bytes());
        prop_assert_eq!(&serde_json::from_slice::<Value>(&printed).expect("JSON"), &value);
        prop_assert_eq!(compact(&printed), plain.as_bytes());
        prop_assert_eq!(&indented(&printed), &printed);
        prop_assert_eq!(&serde_json::to_vec_pretty(&value).expect("JSON"), &printed);
        let (mut indenter, mut pieces) = (Indenter::default(), Vec::new());
        let mut rest = plain.as_bytes();
        for length in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*length).min(rest.len()));
            indenter.push(piece, &mut pieces);
            rest = after;
        }
        prop_assert_eq!(pieces, printed);
    }
}
