//! Encoded objects and pages decode to the same values.

use std::sync::Arc;

use bytes::Bytes;
use kubefan::api::{EventType, ListPage, Object, ResourceVersion, WatchEvent};
use kubefan::codec::{Decoder, Encoder, ListMetadata};

/// Checks that the frames that the encoder makes of an object decode to the same object. `is_plain`
/// is true if the object contains no repeated field.
pub(super) fn check_round_trip(
    decoder: &Decoder,
    encoder: &Encoder,
    (event_type, object): (EventType, &Object),
    is_plain: bool,
) {
    let printed = encoder.event(event_type, object);
    assert_eq!(
        decode_change(decoder, printed),
        (event_type, object.clone())
    );
    let deleted = ResourceVersion(object.resource_version.0 ^ 1);
    let (event_type, read) = decode_change(decoder, encoder.deleted_at(object, deleted));
    assert_eq!(event_type, EventType::Deleted);
    if is_plain {
        assert_eq!(read.resource_version, deleted);
        assert_eq!((&read.key, read.uid()), (&object.key, object.uid()));
        assert!(read.has_same_selectable_values(object));
    }
}

pub(super) fn decode_change(decoder: &Decoder, frame: Bytes) -> (EventType, Object) {
    match decoder.event(frame.clone()) {
        Ok(WatchEvent::Change {
            event_type, object, ..
        }) => (event_type, object),
        other => panic!("{frame:?} is read as {other:?}"),
    }
}

/// Checks that a page that is encoded in parts decodes to the same page.
pub(super) fn check_page_round_trip(decoder: &Decoder, encoder: &Encoder, page: ListPage) {
    let items: Vec<_> = page.items.into_iter().map(Arc::new).collect();
    let (version, token) = (page.resource_version, page.continue_token.as_deref());
    let metadata = ListMetadata {
        continue_token: token.unwrap_or_default(),
        remaining_item_count: Some(7),
        ..version.into()
    };
    let parts = encoder.list_parts(metadata, items.iter().cloned());
    let printed: Vec<Bytes> = parts.collect();
    let printed = Bytes::from(printed.concat());
    let again = decoder
        .list(&printed)
        .expect("an encoded page can be decoded");
    assert_eq!(
        (again.resource_version, &again.continue_token),
        (version, &page.continue_token)
    );
    let bodies = |object: &Object| (object.key.clone(), object.body.clone());
    let read: Vec<_> = again.items.iter().map(bodies).collect();
    let given: Vec<_> = items.iter().map(|object| bodies(object)).collect();
    assert_eq!(read, given);
}
