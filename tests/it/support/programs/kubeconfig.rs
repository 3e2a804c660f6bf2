//! Writes kubeconfig files in JSON, which is a subset of YAML.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::programs::certificates::Identity;

/// The credentials in a kubeconfig: none, a bearer token, or a client certificate.
#[derive(Debug)]
pub(crate) enum User<'a> {
    Anonymous,
    Token(&'a str),
    Certificate(&'a Identity),
}

/// Writes a kubeconfig with one context, `test`. `authority` is the CA certificate in PEM.
pub(crate) fn write(path: &Path, server: &str, authority: Option<&str>, user: &User<'_>) {
    let mut cluster = json!({ "server": server });
    if let Some(authority) = authority {
        cluster["certificate-authority-data"] = base64(authority);
    }
    let user = match user {
        User::Anonymous => json!({}),
        User::Token(token) => json!({ "token": token }),
        User::Certificate(identity) => json!({
            "client-certificate-data": base64(&identity.certificate),
            "client-key-data": base64(&identity.key),
        }),
    };
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": cluster }],
        "users": [{ "name": "test", "user": user }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    });
    fs::write(path, config.to_string()).expect("a kubeconfig can be written");
}

fn base64(text: &str) -> Value {
    Value::String(STANDARD.encode(text))
}
