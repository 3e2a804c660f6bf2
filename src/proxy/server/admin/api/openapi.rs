//! The OpenAPI document, made from the types of the pages.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::page::{Endpoint, PREFIX};
use crate::server::admin::why;
use crate::server::why::Explanation;

/// The last part of the document's path.
pub(super) const NAME: &str = "openapi.json";
/// Where the document has the schemas of the types.
const SCHEMAS: &str = "/components/schemas";

/// Returns the document of `pages` and of `stream` as JSON, with a newline at the end.
pub(super) fn document(pages: &[Endpoint], stream: &Endpoint) -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with(|settings| settings.definitions_path = SCHEMAS.into());
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for page in pages {
        let schema = (page.schema)(&mut generator).to_value();
        let operation = operation(page, "application/json", &schema);
        paths.insert(format!("{PREFIX}{}", page.name), operation);
    }
    let schema = (stream.schema)(&mut generator).to_value();
    paths.insert(
        format!("{PREFIX}{}", stream.name),
        stream_operation(stream, &schema),
    );
    let schema = generator.subschema_for::<Explanation>().to_value();
    paths.insert(why::PATH.to_owned(), question(&schema));
    let of_document = json!({
        "get": {
            "operationId": "openapi",
            "summary": "This document.",
            "responses": {"200": answer("application/json", &json!({"type": "object"}))},
        }
    });
    paths.insert(format!("{PREFIX}{NAME}"), of_document);
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
    json!({
        "get": {
            "operationId": page.name,
            "summary": page.summary,
            "responses": {
                "200": answer(media_type, schema),
                "401": refusal("The caller has no token that the API server knows."),
                "403": refusal("The caller has not the right, or may be a foreign web page."),
                "503": refusal("The API server has not answered kubefan yet."),
            },
        }
    })
}

/// Returns the description of a GET of the stream.
fn stream_operation(stream: &Endpoint, schema: &Value) -> Value {
    let mut operation = operation(stream, "text/event-stream", schema);
    let responses = &mut operation["get"]["responses"];
    responses["200"]["description"] =
        "Server-sent events with the name snapshot. The data of each \
         is one line of JSON. A stream ends after 50 s, or if its client has missed more than five \
         snapshots; the client opens the next one after a second."
            .into();
    responses["429"] = refusal("There are 16 streams already.");
    operation
}

/// Returns the description of a question about a request.
fn question(schema: &Value) -> Value {
    json!({
        "get": {
            "operationId": "why",
            "summary": "Which way a request would take, and what would change it.",
            "parameters": question_parameters(),
            "responses": {
                "200": answer("application/json", schema),
                "400": refusal("The question is malformed."),
                "401": refusal("The API server does not know the caller."),
                "403": refusal(
                    "The caller may not impersonate the user, or may be a foreign web page; or clients \
                     are not authenticated, and the listener is not loopback.",
                ),
                "429": refusal("The caller asks more than ten times a second."),
                "503": refusal("The API server has not answered kubefan yet."),
            },
        }
    })
}

fn question_parameters() -> Vec<Value> {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let parameters = [
        ("path", true, &text, "The path and query of the request."),
        ("method", false, &text, "Its method. Default is GET."),
        (
            "header",
            false,
            &texts,
            "One of its headers, as NAME: VALUE.",
        ),
        (
            "as",
            false,
            &text,
            "The user that sends it. Default is the caller.",
        ),
        ("asGroup", false, &texts, "A group of that user."),
        ("asUid", false, &text, "The UID of that user."),
        (
            "asExtra",
            false,
            &texts,
            "An attribute of that user, as KEY=VALUE.",
        ),
    ];
    let parameters = parameters.into_iter();
    let parameters = parameters.map(|(name, is_required, schema, description)| {
        json!({
            "name": name,
            "in": "query",
            "required": is_required,
            "description": description,
            "schema": schema,
        })
    });
    parameters.collect()
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
