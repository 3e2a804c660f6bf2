//! Tests of the paths of the API.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use http_body_util::BodyExt;
use kubefan_core::shutdown;
use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::ledger::Limits;

fn api() -> Api {
    let bill = Bill::new(&Limits::default(), Instant::now());
    api_with(Some(Arc::new(bill)))
}

fn api_with(bill: Option<Arc<Bill>>) -> Api {
    let ledger = Ledger::new(Limits::default());
    let shutdown = Shutdown::new(shutdown::Config::default());
    Api::new(Startup::default(), ledger, bill, &Registry::new(), shutdown)
}

/// Returns the status code and the JSON of the answer to a GET of `path`.
async fn get(api: &Api, path: &str) -> (u16, Value) {
    let answer = api.answer(path).await;
    let code = answer.status().as_u16();
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
    let body = answer.into_body().collect().await.expect("no error");
    let json = serde_json::from_slice(&body.to_bytes()).expect("JSON");
    (code, json)
}

#[tokio::test(start_paused = true)]
async fn before_the_api_server_has_answered_some_pages_wait() {
    let api = api();
    for (name, expected) in [
        ("caches", 503),
        ("freshness", 503),
        ("relists", 503),
        ("events", 503),
        ("config", 404),
        ("clients", 200),
        ("users", 200),
        ("bill", 200),
        ("advice", 200),
        ("memory", 200),
        ("openapi.json", 200),
    ] {
        let (code, _) = get(&api, &format!("{PREFIX}{name}")).await;
        assert_eq!(code, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_bill_its_pages_are_not_found() {
    let api = api_with(None);
    for name in ["bill", "advice"] {
        let (code, status) = get(&api, &format!("{PREFIX}{name}")).await;
        assert_eq!(code, 404, "{name}");
        let message = status["message"].as_str().expect("a message");
        assert!(message.contains("--bill"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_path_names_those_that_exist() {
    let api = api();
    for path in [
        "/admin",
        "/admin/",
        "/admin/v1",
        "/admin/v1/",
        "/admin/v1/none",
        "/admin/v2/caches",
    ] {
        let (code, status) = get(&api, path).await;
        assert_eq!((code, &status["kind"]), (404, &"Status".into()), "{path}");
        let message = status["message"].as_str().expect("a message");
        for name in ["caches", "users", EVENTS, OPENAPI] {
            assert!(message.contains(name), "{message}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_settings_are_those_that_were_passed_last() {
    let api = api();
    for value in [1, 2] {
        let setting = EffectiveSetting {
            key: "limits.memory".to_owned(),
            value: value.into(),
            origin: SettingOrigin::Flag,
            place: Some("--memory".to_owned()),
            needs_restart: true,
            waits_for_restart: false,
        };
        api.show_settings(vec![setting]);
        let (code, page) = get(&api, "/admin/v1/config").await;
        assert_eq!(code, 200);
        let expected = serde_json::json!([{
            "key": "limits.memory", "value": value, "origin": "flag", "place": "--memory",
            "needsRestart": true, "waitsForRestart": false,
        }]);
        assert_eq!(page["settings"], expected);
    }
}

#[test]
fn the_numbers_of_users_differ_and_stay() {
    let sources = Sources::new(Startup::default(), Ledger::new(Limits::default()), None);
    assert_eq!(sources.number_of("jane"), sources.number_of("jane"));
    let numbers = (0..100_000).map(|user| sources.number_of(&user.to_string()));
    let different: HashSet<u64> = numbers.collect();
    assert_eq!(different.len(), 100_000);
    // A number in JavaScript is exact up to here.
    assert!(different.iter().all(|number| *number < 1 << 53));
}

/// With `KUBEFAN_WRITE_GOLDEN=1` the file is written.
#[test]
fn the_checked_in_document_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin-api.json");
    let wanted = openapi_document();
    if std::env::var_os("KUBEFAN_WRITE_GOLDEN").is_some() {
        fs::write(&path, &wanted).expect("a file can be written");
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == wanted,
        "regenerate docs/admin-api.json: KUBEFAN_WRITE_GOLDEN=1 cargo test --package kubefan-proxy admin::api"
    );
}

#[test]
fn every_reference_has_a_schema_and_every_field_a_text() {
    let document: Value = serde_json::from_str(&openapi_document()).expect("JSON");
    let mut references = Vec::new();
    find_references(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let schemas = document["components"]["schemas"].as_object();
    for (name, schema) in schemas.expect("schemas") {
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let is_described = property["description"].is_string()
                || property["$ref"].is_string()
                || property["const"].is_string();
            assert!(is_described, "{name}.{field}: {property}");
        }
    }
}

fn find_references(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let reference = fields.get("$ref").and_then(Value::as_str);
            references.extend(reference.map(str::to_owned));
            fields
                .values()
                .for_each(|value| find_references(value, references));
        }
        Value::Array(items) => {
            items
                .iter()
                .for_each(|value| find_references(value, references));
        }
        _ => {}
    }
}
