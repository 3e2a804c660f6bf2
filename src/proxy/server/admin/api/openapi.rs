//! The OpenAPI document, made from the types of the pages.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::page::Endpoint;
use super::pages::snapshot::Snapshot;
use super::{EVENTS, OPENAPI, PREFIX, endpoints};

/// Where the document has the schemas of the types.
const SCHEMAS: &str = "/components/schemas";

/// Returns the document as JSON, with a newline at the end.
pub(super) fn document() -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with(|settings| settings.definitions_path = SCHEMAS.into());
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    let mut add = |page: &Endpoint, media_type: &str| {
        let schema = (page.schema)(&mut generator).to_value();
        let operation = operation(page, media_type, &schema);
        paths.insert(format!("{PREFIX}{}", page.name), operation);
    };
    for page in endpoints() {
        add(&page, "application/json");
    }
    add(&Endpoint::of::<Snapshot>(), "text/event-stream");
    let of_document = json!({
        "get": {
            "operationId": "openapi",
            "summary": "This document.",
            "responses": {"200": answer("application/json", &json!({"type": "object"}))},
        }
    });
    paths.insert(format!("{PREFIX}{OPENAPI}"), of_document);
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Status".to_owned(), status());
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "The admin API of kubefan",
            "version": "v1",
            "description": "What a kubefan has and does. Within v1, fields may be added; none is \
                            removed or changes its meaning. Values are at most a second old.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        // On loopback no token is needed.
        "security": [{"bearer": []}, {}],
    });
    format!("{document:#}\n")
}

/// Returns the description of a GET of `page`.
fn operation(page: &Endpoint, media_type: &str, schema: &Value) -> Value {
    let mut responses = json!({
        "200": answer(media_type, schema),
        "401": refusal("The caller has no token that the API server knows."),
        "403": refusal("The caller has not the right, or may be a foreign web page."),
        "503": refusal("The API server has not answered kubefan yet."),
    });
    if page.name == EVENTS {
        responses["200"]["description"] = "Server-sent events with the name snapshot. The data of \
             each is one line of JSON. A stream ends after 50 s, or if its client has missed more \
             than five snapshots; the client opens the next one after a second."
            .into();
        responses["429"] = refusal("There are 16 streams already.");
    }
    json!({
        "get": {
            "operationId": page.name,
            "summary": page.summary,
            "responses": responses,
        }
    })
}

fn answer(media_type: &str, schema: &Value) -> Value {
    let mut content = Map::new();
    content.insert(media_type.to_owned(), json!({"schema": schema}));
    json!({"description": "The page.", "content": content})
}

fn refusal(description: &str) -> Value {
    let schema = json!({"$ref": format!("#{SCHEMAS}/Status")});
    let mut refusal = answer("application/json", &schema);
    refusal["description"] = description.into();
    refusal
}

/// Returns the schema of an error.
fn status() -> Value {
    json!({
        "type": "object",
        "description": "An error, as the API server words it.",
        "properties": {
            "kind": {"type": "string", "const": "Status"},
            "apiVersion": {"type": "string", "const": "v1"},
            "status": {"type": "string", "description": "Failure."},
            "message": {"type": "string", "description": "The problem, as text for people."},
            "reason": {"type": "string", "description": "The problem, as a word for programs."},
            "code": {"type": "integer", "description": "The status code of the answer."},
        },
        "required": ["kind", "apiVersion", "status", "message", "code"],
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// With `KUBEFAN_WRITE_GOLDEN=1` the file is written.
    #[test]
    fn the_checked_in_document_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin-api.json");
        let wanted = document();
        if std::env::var_os("KUBEFAN_WRITE_GOLDEN").is_some() {
            fs::write(&path, &wanted).expect("a file can be written");
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == wanted,
            "regenerate docs/admin-api.json: KUBEFAN_WRITE_GOLDEN=1 cargo test --package kubefan-proxy openapi"
        );
    }

    #[test]
    fn every_reference_has_a_schema_and_every_field_a_text() {
        let document: Value = serde_json::from_str(&document()).expect("JSON");
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
}
