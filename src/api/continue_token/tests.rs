//! Table and property tests of continue tokens.

use proptest::prelude::*;

use super::ContinueToken;
use super::base64_url;
use crate::api::ObjectKey;
use crate::api::ResourceVersion;

fn message(token: &str) -> Result<ContinueToken, String> {
    ContinueToken::decode(token).map_err(|status| {
        assert_eq!(
            (status.code, status.reason.as_deref()),
            (400, Some("BadRequest"))
        );
        assert_eq!(status.details, None);
        status.message
    })
}

fn token(resource_version: u64, start: &str) -> ContinueToken {
    let resource_version = (resource_version > 0).then_some(ResourceVersion(resource_version));
    let start = start.to_owned();
    ContinueToken {
        resource_version,
        start,
    }
}

#[test]
fn prints_what_the_api_server_prints() {
    // A token that a kube-apiserver issued.
    let issued = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjEzLCJzdGFydCI6Ii9iXHUwMDAwIn0";
    assert_eq!(message(issued), Ok(token(213, "b\0")));
    assert_eq!(token(213, "b\0").encode(), issued);
    let text = token(0, "b\0").encode();
    let json = super::decode_base64_url(&text).expect("is base64");
    assert_eq!(
        json,
        br#"{"v":"meta.k8s.io/v1","rv":-1,"start":"/b\u0000"}"#
    );
}

#[test]
fn relates_keys_to_the_scope() {
    let last = ObjectKey::new(Some("x"), "b");
    let version = ResourceVersion(5);
    let in_namespace = ContinueToken::after(&last, Some("x"), version);
    assert_eq!(in_namespace, token(5, "b\0"));
    assert_eq!(in_namespace.start_key(Some("x")), "x/b\0");
    let in_all = ContinueToken::after(&last, None, version);
    assert_eq!(in_all, token(5, "x/b\0"));
    assert_eq!(in_all.start_key(None), "x/b\0");
    assert_eq!(in_all.inconsistent(), token(0, "x/b\0"));
}

#[test]
fn reads_and_refuses_as_the_api_server_does() {
    const V1: &str = r#""v":"meta.k8s.io/v1""#;
    let invalid = |fault: &str| {
        Err(format!(
            "invalid continue token: continue key is not valid: {fault}"
        ))
    };
    for (json, expected) in [
        (
            format!(r#"{{{V1},"rv":7,"start":"/cm2\u0000"}}"#),
            Ok(token(7, "cm2\0")),
        ),
        (
            format!(r#"{{{V1},"rv":7,"start":"cm2\u0000"}}"#),
            Ok(token(7, "cm2\0")),
        ),
        (
            format!(r#"{{{V1},"rv":-1,"start":"/x/b\u0000"}}"#),
            Ok(token(0, "x/b\0")),
        ),
        (
            format!(r#" {{"start":"b",{V1},"more":[],"rv":7}} "#),
            Ok(token(7, "b")),
        ),
        (
            format!(r#"{{{V1},"rv":7,"start":"../x"}}"#),
            invalid("../x"),
        ),
        (
            format!(r#"{{{V1},"rv":7,"start":"/a//b"}}"#),
            invalid("/a//b"),
        ),
        (
            format!(r#"{{{V1},"rv":7,"start":"a/./b"}}"#),
            invalid("a/./b"),
        ),
        (format!(r#"{{{V1},"rv":7,"start":"a/"}}"#), invalid("a/")),
        (
            format!(r#"{{{V1},"rv":0,"start":"a"}}"#),
            invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        ),
        (
            format!(r#"{{{V1},"rv":7,"start":""}}"#),
            invalid("encoded start key empty (version meta.k8s.io/v1)"),
        ),
        (
            r#"{"v":"meta.k8s.io/v2","rv":1,"start":"x"}"#.to_owned(),
            invalid("server does not recognize this encoded version meta.k8s.io/v2"),
        ),
        (
            "null".to_owned(),
            invalid("server does not recognize this encoded version "),
        ),
        (String::new(), invalid("unexpected end of JSON input")),
        (format!("{{{V1},"), invalid("unexpected end of JSON input")),
        (
            format!(r#"{{{V1},"rv":7,"start":"/b\u00"#),
            invalid(r"invalid character ' ' in \u hexadecimal character escape"),
        ),
        (
            "{} x".to_owned(),
            invalid("invalid character 'x' after top-level value"),
        ),
        (
            format!(r#"{{{V1} "rv":7}}"#),
            invalid("invalid character '\"' after object key:value pair"),
        ),
        (
            "[]".to_owned(),
            invalid("json: cannot unmarshal array into Go value of type storage.continueToken"),
        ),
        (
            format!(r#"{{{V1},"rv":"7"}}"#),
            invalid(
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
        ),
    ] {
        assert_eq!(message(&base64_url(json.as_bytes())), expected, "{json}");
    }
}

#[test]
fn refuses_what_is_no_base64() {
    for (text, fault) in [
        (
            "garbage",
            r"invalid character '\u0081' looking for beginning of value",
        ),
        ("a", "illegal base64 data at input byte 0"),
        ("abcd\nefghi", "illegal base64 data at input byte 9"),
        ("ab=", "illegal base64 data at input byte 2"),
        ("a+b", "illegal base64 data at input byte 1"),
        ("abé", "illegal base64 data at input byte 2"),
    ] {
        let expected = format!("invalid continue token: continue key is not valid: {fault}");
        assert_eq!(message(text), Err(expected), "{text}");
    }
}

proptest! {
    #[test]
    fn reads_back_what_it_prints(
        resource_version in prop::option::of(1..=i64::MAX as u64),
        start in "([a-z0-9<&é\0]{1,6}/)?[a-z0-9.-]{1,6}[a-z0-9]\0?",
    ) {
        let resource_version = resource_version.map(ResourceVersion);
        let token = ContinueToken { resource_version, start };
        prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
    }

    #[test]
    fn never_panics(text in ".*", near in "[A-Za-z0-9_-]{0,40}", json in ".*", cut in "[{}\"v:1,\\\\u0é\n ]{0,20}") {
        for text in [text, near, base64_url(json.as_bytes()), base64_url(cut.as_bytes())] {
            if let Ok(token) = ContinueToken::decode(&text) {
                prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
            }
        }
    }
}
