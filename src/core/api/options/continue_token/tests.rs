//! Table and property tests of continue tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;

use super::ContinueToken;
use crate::api::{ObjectKey, ResourceVersion};

fn base64_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
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
    // This token was issued by a kube-apiserver.
    let issued = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjEzLCJzdGFydCI6Ii9iXHUwMDAwIn0";
    assert_eq!(ContinueToken::decode(issued), Ok(token(213, "b\0")));
    assert_eq!(token(213, "b\0").encode(), issued);
    let text = token(0, "b\0").encode();
    let json = URL_SAFE_NO_PAD.decode(&text).expect("is base64");
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
fn reads_and_refuses() {
    const V1: &str = r#""v":"meta.k8s.io/v1""#;
    for (json, expected) in [
        (
            format!(r#"{{{V1},"rv":7,"start":"/cm2\u0000"}}"#),
            Some(token(7, "cm2\0")),
        ),
        (
            format!(r#"{{{V1},"rv":7,"start":"cm2\u0000"}}"#),
            Some(token(7, "cm2\0")),
        ),
        (
            format!(r#"{{{V1},"rv":-1,"start":"/x/b\u0000"}}"#),
            Some(token(0, "x/b\0")),
        ),
        (
            format!(r#" {{"start":"b",{V1},"more":[],"rv":7}} "#),
            Some(token(7, "b")),
        ),
        (format!(r#"{{{V1},"rv":7,"start":"../x"}}"#), None),
        (format!(r#"{{{V1},"rv":7,"start":"/a//b"}}"#), None),
        (format!(r#"{{{V1},"rv":7,"start":"a/./b"}}"#), None),
        (format!(r#"{{{V1},"rv":7,"start":"a/"}}"#), None),
        (format!(r#"{{{V1},"rv":0,"start":"a"}}"#), None),
        (format!(r#"{{{V1},"rv":7,"start":""}}"#), None),
        (format!(r#"{{{V1},"rv":7,"start":"/"}}"#), None),
        (format!(r#"{{{V1},"rv":"7","start":"a"}}"#), None),
        (format!(r#"{{{V1},"rv":7}}"#), None),
        (
            r#"{"v":"meta.k8s.io/v2","rv":1,"start":"x"}"#.to_owned(),
            None,
        ),
        ("null".to_owned(), None),
        (String::new(), None),
        ("[]".to_owned(), None),
        (r#"["meta.k8s.io/v1",5,"/a/b\u0000"]"#.to_owned(), None),
        ("{} x".to_owned(), None),
    ] {
        let decoded = ContinueToken::decode(&base64_url(json.as_bytes()));
        assert_eq!(decoded.ok(), expected, "{json}");
    }
    for text in ["garbage", "a", "ab=", "a+b", "abé"] {
        let malformed = ContinueToken::decode(text).expect_err(text);
        assert_eq!(
            malformed.to_string(),
            "continue: it is not the token of a list"
        );
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
