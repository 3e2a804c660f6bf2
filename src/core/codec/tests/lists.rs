//! Decodes recorded lists of a real API server and encodes them again.

use std::sync::Arc;

use bytes::Bytes;

use super::support::{JSON, PROTOBUF, change, decoder, frames, golden, text_of, widget_decoder};
use crate::api::{ListPage, ResourceVersion, ShardSelector};
use crate::codec::{Encoder, ListMetadata, MetaVersion, TypeMeta};

fn print_list(encoder: &Encoder, page: ListPage, remaining: Option<u64>) -> Vec<u8> {
    let items: Vec<_> = page.items.into_iter().map(Arc::new).collect();
    let metadata = ListMetadata {
        continue_token: page.continue_token.as_deref().unwrap_or_default(),
        remaining_item_count: remaining,
        ..page.resource_version.into()
    };
    text_of(encoder.list_parts(metadata, items))
}

#[test]
fn lists_are_printed_as_received() {
    let pods = || decoder(JSON);
    let cases = [
        (pods(), JSON, golden!("list-pods.json"), None),
        (pods(), JSON, golden!("list-pods-limit2.json"), Some(1)),
        (
            pods(),
            JSON,
            golden!("list-empty-missing-namespace.json"),
            None,
        ),
        (
            decoder(PROTOBUF),
            PROTOBUF,
            golden!("list-pods-pb.bin"),
            None,
        ),
        (
            decoder(PROTOBUF),
            PROTOBUF,
            golden!("list-empty-pb.bin"),
            None,
        ),
        (widget_decoder(), JSON, golden!("cr-list.json"), None),
        (widget_decoder(), JSON, golden!("cr-limit1.json"), Some(1)),
    ];
    for (decoder, format, body, remaining) in cases {
        let encoder = Encoder::from_type_meta(format, &TypeMeta::read(format, &body).unwrap());
        let printed = print_list(&encoder, decoder.list(&body).unwrap(), remaining);
        assert_eq!(Bytes::from(printed), body);
    }
}

#[test]
fn a_protobuf_page_carries_token_and_remaining_count() {
    let encoder = Encoder::new(PROTOBUF, "Pod", "v1");
    let mut page = decoder(PROTOBUF)
        .list(&golden!("list-pods-pb.bin"))
        .unwrap();
    page.continue_token = Some("token".to_owned());
    let printed = Bytes::from(print_list(&encoder, page, Some(300)));
    let read = decoder(PROTOBUF).list(&printed).unwrap();
    assert_eq!(read.continue_token.as_deref(), Some("token"));
    assert_eq!(read.items.len(), 3);
    let count: &[u8] = &[0x20, 0xac, 0x02];
    assert!(printed.windows(3).any(|window| window == count));
}

/// As recorded from an API server with the feature gate ShardedListAndWatch.
#[test]
fn a_list_names_its_shard_only_with_whole_built_in_objects() {
    let text = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    let shard = ShardSelector::parse(text).expect("a selector");
    let printed = |encoder: &Encoder| {
        let metadata = ListMetadata {
            shard: Some(&shard),
            remaining_item_count: Some(3),
            ..ResourceVersion(7).into()
        };
        text_of(encoder.list_parts(metadata, Vec::new()))
    };
    let json = Encoder::new(JSON, "Pod", "v1");
    let expected = format!(
        "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"7\",\
         \"remainingItemCount\":3,\"shardInfo\":{{\"selector\":\"{text}\"}}}},\"items\":[]}}\n"
    );
    assert_eq!(printed(&json), expected.as_bytes());
    let protobuf = Encoder::new(PROTOBUF, "Pod", "v1");
    let length = text.len() as u8;
    let info = [&[0x20, 3, 0x2a, length + 2, 0x0a, length], text.as_bytes()].concat();
    let list = printed(&protobuf);
    assert!(list.windows(info.len()).any(|window| window == info));
    for encoder in [
        json.clone().with_embedded_type_meta(true),
        json.partial(JSON, MetaVersion::V1),
        protobuf.partial(PROTOBUF, MetaVersion::V1),
    ] {
        let list = printed(&encoder);
        let has_shard = list.windows(5).any(|window| window == b"shard");
        assert!(!has_shard, "{}", String::from_utf8_lossy(&list));
    }
}

#[test]
fn values_are_found_in_both_formats() {
    let json = decoder(JSON).list(&golden!("list-pods.json")).unwrap();
    let protobuf = decoder(PROTOBUF)
        .list(&golden!("list-pods-pb.bin"))
        .unwrap();
    assert_eq!(json.items.len(), 3);
    for (json, protobuf) in json.items.iter().zip(&protobuf.items) {
        assert_eq!(json.key, protobuf.key);
        assert_eq!(json.uid(), protobuf.uid());
        assert!(
            json.has_same_selectable_values(protobuf),
            "{json:?} {protobuf:?}"
        );
    }
    let first = &json.items[0];
    assert_eq!(first.key.as_str(), "golden/a");
    assert_eq!(first.uid(), "71699dae-115a-4c22-a8d6-2a9c28e8a3b8");
    assert_eq!(first.resource_version, ResourceVersion(211));
    assert_eq!(first.label("tier"), Some("x"));
    assert_eq!(
        [1, 2, 4].map(|at| first.field(at)),
        ["false", "Running", "1"]
    );
    assert_eq!(first.field(5), "");
}

#[test]
fn custom_resources_give_scalars() {
    let page = widget_decoder().list(&golden!("cr-list.json")).unwrap();
    let rows = page
        .items
        .iter()
        .map(|item| item.fields().collect::<Vec<_>>());
    assert!(rows.eq([["red", "1", ""], ["blue", "1", ""]]));
}

#[test]
fn a_pretty_printed_list_is_read_like_the_plain_one() {
    let plain = widget_decoder().list(&golden!("cr-list.json")).unwrap();
    let pretty = widget_decoder()
        .list(&golden!("cr-list-pretty.json"))
        .unwrap();
    assert_eq!(pretty.items, plain.items);
    let pod = decoder(JSON).object(&golden!("get-pod.json")).unwrap();
    let pretty = decoder(JSON)
        .object(&golden!("get-pod-pretty.json"))
        .unwrap();
    assert_eq!(pretty, pod);
}

#[test]
fn list_items_and_events_have_the_same_body() {
    let list = decoder(JSON).list(&golden!("list-pods.json")).unwrap();
    let single = decoder(JSON).object(&golden!("get-pod.json")).unwrap();
    assert_eq!(list.items[0], single);
    let list = decoder(PROTOBUF)
        .list(&golden!("list-pods-pb.bin"))
        .unwrap();
    let single = decoder(PROTOBUF)
        .object(&golden!("get-pod-pb.bin"))
        .unwrap();
    assert_eq!(list.items[0], single);
    let list = widget_decoder().list(&golden!("cr-list.json")).unwrap();
    let frame = frames(JSON, golden!("cr-watch.json")).swap_remove(0);
    let (_, single) = change(widget_decoder().event(frame).unwrap());
    assert_eq!(list.items[0], single);
}
