//! Measures a LIST of 5,000 pods of 6.8 KiB in the process: making the answer, and polling its body
//! to the end. `cargo bench --bench list`.

mod support;

use std::sync::Arc;

use divan::Bencher;
use divan::counter::BytesCount;
use http_body_util::BodyExt;
use kubefan::api::{
    GroupVersionResource, Object, ObjectValues, Resource, ResourceVersion, SelectableFields,
    WireFormat,
};
use kubefan::cache::{Reader, Writer};
use kubefan::codec::{Decoder, Encoder, MetaVersion, Representation, View};
use kubefan::shutdown::Shutdown;
use kubefan::{cache, shutdown};
use kubefan_proxy::server;
use kubefan_proxy::server::{Collection, RequestInfo};
use support::pods;

/// The size of a pod in protobuf. In a real cluster it is about two thirds of the size in JSON.
const PROTOBUF_BYTES: usize = 4_700;
const PATH: &str = "/api/v1/pods";

fn main() {
    divan::main();
}

struct Pods {
    _writer: Writer,
    reader: Reader,
    encoder: Arc<Encoder>,
    resource: Arc<Resource>,
    fields: Arc<SelectableFields>,
}

impl Collection for Pods {
    fn reader(&self) -> &Reader {
        &self.reader
    }

    fn encoder(&self) -> Arc<Encoder> {
        Arc::clone(&self.encoder)
    }
}

impl Pods {
    fn filled(format: WireFormat, count: usize) -> Arc<Self> {
        let fields = Arc::new(SelectableFields::default());
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let decoder = Decoder::new(WireFormat::Json, Arc::clone(&fields));
        let mut relist = writer.relist();
        for pod in pods(count) {
            let pod = decoder.object(pod.as_bytes()).expect("a pod");
            relist.add(match format {
                WireFormat::Json => pod,
                WireFormat::Protobuf => protobuf(pod),
            });
        }
        writer.replace(relist, ResourceVersion(1_000_000));
        Arc::new(Self {
            _writer: writer,
            reader,
            encoder: Arc::new(Encoder::new(format, "Pod", "v1")),
            resource: Arc::new(Resource {
                gvr: GroupVersionResource::new("", "v1", "pods"),
                kind: "Pod".into(),
                singular: "pod".into(),
                short_names: Vec::new(),
                namespaced: true,
                verbs: Vec::new(),
            }),
            fields,
        })
    }
}

/// Returns an object that is as long as the pod in protobuf. A LIST does not parse the bytes.
fn protobuf(pod: Object) -> Object {
    let values = ObjectValues {
        uid: pod.uid().into(),
        labels: pod
            .labels()
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
        fields: pod.fields().map(Into::into).collect(),
    };
    let body = pod.body.slice(..PROTOBUF_BYTES.min(pod.body.len()));
    Object::new(pod.key.clone(), pod.resource_version, &values, body)
}

fn list(pods: &Arc<Pods>, representation: Representation, query: &str) -> usize {
    let collection = Arc::clone(pods) as Arc<dyn Collection>;
    let resource = (&pods.resource, &pods.fields);
    let info = RequestInfo::parse(&http::Method::GET, PATH, query);
    let shutdown = Shutdown::new(shutdown::Config::default());
    let all = async {
        let answer = server::read_authoritative(
            &collection,
            resource,
            representation,
            &info,
            query,
            &shutdown,
        );
        let mut body = answer.await.expect("a list").into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.expect("no failure").into_data();
            bytes += data.map_or(0, |data| data.len());
        }
        bytes
    };
    support::runtime().block_on(all)
}

fn bench(bencher: Bencher<'_, '_>, view: View, format: WireFormat, indent: bool, query: &str) {
    let collection = Pods::filled(format, 5_000);
    let representation = Representation {
        format,
        view,
        indent,
    };
    let bytes = list(&collection, representation, query);
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| list(&collection, representation, query));
}

/// Lists complete objects.
#[divan::bench(args = ["json", "protobuf", "indented"])]
fn identity(bencher: Bencher<'_, '_>, form: &str) {
    let format = match form {
        "protobuf" => WireFormat::Protobuf,
        _ => WireFormat::Json,
    };
    let indent = form == "indented";
    bench(bencher, View::Whole, format, indent, "resourceVersion=0");
}

/// Lists metadata only.
#[divan::bench]
fn metadata(bencher: Bencher<'_, '_>) {
    let view = View::Metadata(MetaVersion::V1);
    bench(bencher, view, WireFormat::Json, false, "resourceVersion=0");
}

/// Lists one object in a hundred, with a selector on a label that is not indexed.
#[divan::bench]
fn selective(bencher: Bencher<'_, '_>) {
    let query = "resourceVersion=0&labelSelector=shard%3D7";
    bench(bencher, View::Whole, WireFormat::Json, false, query);
}
