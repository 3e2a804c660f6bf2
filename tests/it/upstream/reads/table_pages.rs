//! Compares the pages of Tables of long lists through kubefan with those of the API server.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::read::MultiGzDecoder;
use futures::future::join_all;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::printed_tables::{is_cached, printed, table, table_from};
use crate::support::clients::client::Client;
use crate::support::cluster::{create_patiently, define_widgets};
use crate::support::normalise::mask_ages;
use crate::support::programs::apiserver::private;
use crate::support::programs::kubefan::Kubefan;

const OBJECTS: usize = 1_200;
/// What kubectl asks for.
const LIMIT: usize = 500;
const WRITERS: usize = 32;
/// Any version, so that a proof is not needed.
const NOT_OLDER: &str = "&resourceVersion=1&resourceVersionMatch=NotOlderThan";
const WIDGETS: &str = "/apis/example.kubefan.io/v1/namespaces";

/// Reads the pages of a list, which the cache or the API server must answer, as `cached` says. `None`
/// if either may. Returns them without ages and versions: a continue token
/// is replaced by its start key.
async fn pages(client: &Client, first: &str, cached: Option<bool>) -> Vec<String> {
    let (mut pages, mut version) = (Vec::new(), None);
    let mut target = first.to_owned();
    loop {
        let answer = match cached {
            Some(cached) => table_from(client, &target, cached).await,
            None => table(client, &target).await,
        };
        let mut page = answer.json();
        let metadata = &mut page["metadata"];
        let of_page = metadata["resourceVersion"].take();
        assert_eq!(version.get_or_insert_with(|| of_page.clone()), &of_page);
        let token = metadata["continue"].take();
        let token = token.as_str().map(str::to_owned);
        if let Some(token) = &token {
            let decoded = URL_SAFE_NO_PAD.decode(token).expect("base64");
            let decoded: Value = serde_json::from_slice(&decoded).expect("JSON");
            assert_eq!(
                decoded["rv"].to_string(),
                of_page.as_str().unwrap_or_default()
            );
            metadata["continue"] = decoded["start"].clone();
        }
        let rows = page["rows"].as_array().map_or(0, Vec::len);
        assert!(rows == LIMIT || token.is_none(), "{target}: {rows} rows");
        pages.push(mask_ages(&page.to_string()));
        match token {
            Some(token) => target = format!("{first}&continue={token}"),
            None => return pages,
        }
        // The version is in the token.
        target = target.replace(NOT_OLDER, "");
    }
}

/// Compares the complete Table, which is long enough to be compressed.
async fn compressed_alike(direct: &Client, through: &Client, path: &str) {
    let target = format!("{path}?resourceVersion=0&includeObject=Object");
    let texts = [direct, through].map(async |client| {
        let answer = table(&client.with("accept-encoding", "gzip"), &target).await;
        assert_eq!(answer.header("content-encoding"), Some("gzip"));
        let mut text = String::new();
        let read = MultiGzDecoder::new(&answer.body[..]).read_to_string(&mut text);
        read.expect("gzip");
        let mut whole: Value = serde_json::from_str(&text).expect("JSON");
        whole["metadata"]["resourceVersion"] = Value::Null;
        (mask_ages(&whole.to_string()), is_cached(&answer))
    });
    let texts = join_all(texts).await;
    assert!(texts[0].0 == texts[1].0, "{target}");
    assert_eq!([texts[0].1, texts[1].1], [false, true]);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn each_page_of_a_long_table_is_the_same_through_kubefan() {
    let server = private().await;
    define_widgets(&server).await;
    let direct = server.client();
    let namespace = server.namespace("pages").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let widgets = format!("{WIDGETS}/{namespace}/widgets");
    let create = async |number: usize| {
        let part = if number.is_multiple_of(2) {
            "even"
        } else {
            "odd"
        };
        let labels = json!({ "part": part });
        let metadata = json!({ "name": format!("o{number}"), "labels": labels });
        let map = json!({ "metadata": metadata, "data": { "number": number.to_string() } });
        let widget = json!({
            "apiVersion": "example.kubefan.io/v1", "kind": "Widget", "metadata": metadata,
            "spec": { "color": format!("color {number}") },
        });
        direct.create(&maps, &map).await.ok();
        create_patiently(&direct, &widgets, &widget).await;
    };
    let created = stream::iter(0..OBJECTS).map(create);
    created.buffer_unordered(WRITERS).collect::<Vec<()>>().await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let through = kubefan.client();
    for path in [&maps, &widgets] {
        printed(&through, path).await;
        compressed_alike(&direct, &through, path).await;
        for selector in ["", "&labelSelector=part%3Dodd"] {
            for include in ["None", "Metadata", "Object"] {
                for version in ["", NOT_OLDER, "&resourceVersion=0"] {
                    let first =
                        format!("{path}?limit={LIMIT}&includeObject={include}{selector}{version}");
                    let wanted = pages(&direct, &first, Some(false)).await;
                    // Either side answers a single list without objects.
                    let is_certain = (path, include, version) != (&maps, "None", "");
                    let got = pages(&through, &first, is_certain.then_some(true)).await;
                    let count = match (version, selector) {
                        // The limit does not count.
                        ("&resourceVersion=0", _) => 1,
                        (_, "") => 3,
                        _ => 2,
                    };
                    assert_eq!((wanted.len(), got.len()), (count, count), "{first}");
                    for (number, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                        assert!(got == wanted, "{first}, page {number}:\n{wanted}\n{got}");
                    }
                }
            }
        }
    }
}
