//! How the API server encodes one resource, as far as the objects do not show it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::InformerSpec;
use crate::api::WireFormat;
use crate::codec::{BookmarkTemplate, Encoder, TypeMeta};

/// The encoder of a resource, adapted to the bookmarks that upstream sends.
///
/// The bookmarks of built-in kinds contain fields with zero values, and those of custom resources
/// have sorted keys. No discovery document says which; the first bookmark of a watch shows it.
pub struct WireShape {
    format: WireFormat,
    list_kind: Option<String>,
    encoder: ArcSwap<Encoder>,
}

impl WireShape {
    /// Returns the shape that discovery gives for `spec`, before any bookmark was received.
    pub fn new(spec: &InformerSpec) -> Self {
        let resource = &spec.resource;
        let encoder = Encoder::new(spec.format, &resource.kind, resource.gvr.api_version())
            .with_embedded_type_meta(spec.custom);
        Self {
            format: spec.format,
            list_kind: spec.list_kind.clone(),
            encoder: ArcSwap::from_pointee(with_list_kind(encoder, spec.list_kind.as_deref())),
        }
    }

    /// Returns the current encoder; later bookmarks replace it, but do not change the returned one.
    pub fn encoder(&self) -> Arc<Encoder> {
        self.encoder.load_full()
    }

    /// Replaces the encoder by one that follows the shape of `bookmark`, a complete BOOKMARK frame.
    /// A frame with the current shape, or one that cannot be decoded, changes nothing: compressed
    /// lists are shared by the identity of their encoder.
    pub fn update_from_bookmark(&self, bookmark: &Bytes) {
        let template = BookmarkTemplate::from_frame(self.format, bookmark);
        let type_meta = TypeMeta::read(self.format, bookmark);
        match (template, type_meta) {
            (Ok(template), Ok(type_meta)) => {
                let encoder = Encoder::from_type_meta(self.format, &type_meta);
                let encoder = encoder.with_bookmark_template(template);
                let encoder = with_list_kind(encoder, self.list_kind.as_deref());
                if encoder != **self.encoder.load() {
                    self.encoder.store(Arc::new(encoder));
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::debug!(%error, "a bookmark cannot be decoded, the encoder is unchanged");
            }
        }
    }
}

fn with_list_kind(encoder: Encoder, list_kind: Option<&str>) -> Encoder {
    match list_kind {
        Some(list_kind) => encoder.with_list_kind(list_kind),
        None => encoder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupVersionResource, Resource};

    fn bookmark(version: u64, more: &str) -> Bytes {
        format!(
            "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\
             \"metadata\":{{\"resourceVersion\":\"{version}\",\"creationTimestamp\":null}}{more}}}}}\n"
        )
        .into()
    }

    #[test]
    fn the_encoder_is_replaced_only_if_the_shape_of_bookmarks_changes() {
        let shape = WireShape::new(&InformerSpec {
            resource: Arc::new(Resource {
                kind: "Pod".to_owned(),
                gvr: GroupVersionResource::new("", "v1", "pods"),
                singular: "pod".to_owned(),
                short_names: Vec::new(),
                namespaced: true,
                verbs: Vec::new(),
            }),
            format: WireFormat::Json,
            fields: Arc::default(),
            custom: false,
            list_kind: None,
            settings: Arc::default(),
        });
        let initial = shape.encoder();
        shape.update_from_bookmark(&bookmark(1, ""));
        let first = shape.encoder();
        assert!(!Arc::ptr_eq(&initial, &first));
        for version in [2, 3000] {
            shape.update_from_bookmark(&bookmark(version, ""));
            assert!(Arc::ptr_eq(&first, &shape.encoder()), "{version}");
        }
        shape.update_from_bookmark(&bookmark(4, ",\"spec\":{}"));
        assert!(!Arc::ptr_eq(&first, &shape.encoder()));
    }
}
