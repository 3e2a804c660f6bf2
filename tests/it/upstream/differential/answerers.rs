//! Reads from kubefan's log how each request was answered, by its audit id.

use std::collections::HashMap;

use serde_json::Value;

/// Returns for each audit id in the log: `cache`, `rejected`, or the reason for forwarding.
pub(super) fn answerers(log: &str) -> HashMap<String, String> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let requests = lines.filter(|line| line["message"] == "request");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    requests
        .map(|line| {
            let answerer = match line["outcome"].as_str() {
                Some("forwarded") => &line["reason"],
                _ => &line["outcome"],
            };
            (text(&line["audit_id"]), text(answerer))
        })
        .collect()
}

#[test]
fn the_log_names_each_answerer() {
    let log = concat!(
        r#"{"level":"INFO","message":"listening"}"#,
        "\nno JSON\n",
        r#"{"message":"request","outcome":"forwarded","reason":"table","audit_id":"case-1"}"#,
        "\n",
        r#"{"message":"request","outcome":"cache","reason":"","audit_id":"case-2"}"#,
    );
    let found = answerers(log);
    assert_eq!(found.len(), 2);
    assert_eq!((&*found["case-1"], &*found["case-2"]), ("table", "cache"));
}
