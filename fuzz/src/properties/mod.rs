//! Properties that must hold for every input of a parser, with one function per parser. A function
//! panics if its property does not hold.
//!
//! The fuzz targets call these functions with the inputs that libFuzzer generates.
//! `tests/it/fuzzing.rs` compiles these files too, and calls the functions with the seeds in
//! `corpus` and with damaged copies of them. The functions use kubefan's public API, the flow control
//! of HTTP/2 connections, and the load test's frame parser.

mod accept;
mod frames;
mod http2;
mod json;
mod load;
mod options;
mod plain;
mod printed;
mod protobuf;
mod selectors;
mod tokens;

use std::sync::Arc;

pub use accept::accept;
pub use frames::watch_frames;
pub use http2::http2_frames;
pub use json::object_json;
use kubefan::api::{GroupVersionResource, Resource, SelectableFields};
pub use load::load_frames;
pub use options::list_options;
pub use protobuf::{object_protobuf, protobuf_to_json};
pub use selectors::{field_selector, label_selector, shard_selector};
pub use tokens::continue_token;

/// The fields of pods that field selectors may use: texts, a boolean, and an element of a list.
fn pod_fields() -> Arc<SelectableFields> {
    Arc::new(SelectableFields::for_resource(
        &Resource {
            gvr: GroupVersionResource::new("", "v1", "pods"),
            kind: "Pod".to_owned(),
            singular: "pod".to_owned(),
            short_names: Vec::new(),
            namespaced: true,
            verbs: Vec::new(),
        },
        None,
    ))
}
