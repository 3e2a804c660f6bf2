//! How the API server prints one resource, as far as objects alone don't tell.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::api::WireFormat;
use crate::codec::BookmarkTemplate;
use crate::codec::Encoder;
use crate::codec::TypeMeta;

use super::InformerSpec;

/// The encoder of a resource, which learns from what upstream sends.
///
/// Typed kinds print their zero fields in bookmarks, and custom resources sort their keys: both
/// show in the first frames of a watch, and in no discovery document.
pub struct WireShape {
    format: WireFormat,
    list_kind: Option<String>,
    encoder: ArcSwap<Encoder>,
}

impl WireShape {
    /// What discovery tells of `spec`.
    pub fn new(spec: &InformerSpec) -> Self {
        let resource = &spec.resource;
        let encoder = Encoder::new(spec.format, &resource.kind, resource.gvr.api_version())
            .with_embedded_type_meta(spec.custom);
        let shape = Self {
            format: spec.format,
            list_kind: spec.list_kind.clone(),
            encoder: ArcSwap::from_pointee(encoder.clone()),
        };
        shape
            .encoder
            .store(Arc::new(shape.with_spec_list_kind(encoder)));
        shape
    }

    /// The encoder of this moment.
    pub fn encoder(&self) -> Arc<Encoder> {
        self.encoder.load_full()
    }

    fn with_spec_list_kind(&self, encoder: Encoder) -> Encoder {
        match &self.list_kind {
            Some(list_kind) => encoder.with_list_kind(list_kind),
            None => encoder,
        }
    }

    /// Learns from a BOOKMARK frame.
    pub fn update_from_bookmark(&self, bookmark: &Bytes) {
        let template = BookmarkTemplate::from_frame(self.format, bookmark);
        let type_meta = TypeMeta::read(self.format, bookmark);
        match (template, type_meta) {
            (Ok(template), Ok(type_meta)) => {
                let encoder = Encoder::from_type_meta(self.format, &type_meta);
                let encoder = encoder.with_bookmark_template(template);
                self.encoder
                    .store(Arc::new(self.with_spec_list_kind(encoder)));
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::debug!(%error, "a bookmark taught nothing");
            }
        }
    }
}
