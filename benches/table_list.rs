//! Measures a LIST of 5,000 pods of 6.8 KiB as a Table in the process: the first list, which prints
//! the rows, and further lists, which find the printed rows. `cargo bench --bench table_list`.

mod support;

use std::sync::Arc;

use divan::Bencher;
use divan::counter::BytesCount;
use http_body_util::BodyExt;
use kubefan::api::{GroupVersionResource, Resource, ResourceVersion, SelectableFields, WireFormat};
use kubefan::cache::{Reader, Writer};
use kubefan::codec::{
    Clock, Decoder, Encoder, IncludeObject, KeptRows, MetaVersion, Printer, Representation,
    RowMemory, TableView, View,
};
use kubefan::shutdown::Shutdown;
use kubefan::{cache, shutdown};
use kubefan_proxy::server;
use kubefan_proxy::server::{Collection, RequestInfo};
use support::pods;

const COUNT: usize = 5_000;
const VERSION: MetaVersion = MetaVersion::V1;

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

/// The pods as rows of a Table.
struct PrintedPods {
    pods: Arc<Pods>,
    printer: Printer,
    kept: Arc<KeptRows>,
    include: IncludeObject,
}

impl Pods {
    fn filled() -> Arc<Self> {
        let fields = Arc::new(SelectableFields::default());
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let decoder = Decoder::new(WireFormat::Json, Arc::clone(&fields));
        let mut relist = writer.relist();
        for pod in pods(COUNT) {
            relist.add(decoder.object(pod.as_bytes()).expect("a pod"));
        }
        writer.replace(relist, ResourceVersion(1_000_000));
        Arc::new(Self {
            _writer: writer,
            reader,
            encoder: Arc::new(Encoder::new(WireFormat::Json, "Pod", "v1")),
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

    fn printed(self: &Arc<Self>, include: IncludeObject) -> Arc<PrintedPods> {
        Arc::new(PrintedPods {
            pods: Arc::clone(self),
            printer: Printer::built_in("v1", "Pod").expect("a printer"),
            kept: Arc::new(KeptRows::new(Arc::new(RowMemory::new(64 << 20)))),
            include,
        })
    }
}

impl Collection for PrintedPods {
    fn reader(&self) -> &Reader {
        &self.pods.reader
    }

    fn encoder(&self) -> Arc<Encoder> {
        Arc::clone(&self.pods.encoder)
    }

    fn encoder_for(&self, _: Representation) -> Arc<Encoder> {
        let (printer, kept) = (self.printer.clone(), Arc::clone(&self.kept));
        let view = TableView::new(
            printer,
            (VERSION, self.include),
            kept,
            Clock::default(),
            false,
        );
        Arc::new(self.pods.encoder.table(Arc::new(view)))
    }
}

fn list(printed: &Arc<PrintedPods>, include: IncludeObject) -> usize {
    const PATH: &str = "/api/v1/pods";
    const QUERY: &str = "resourceVersion=0";
    let representation = Representation {
        format: WireFormat::Json,
        view: View::Table(VERSION, include),
        indent: false,
    };
    let collection = Arc::clone(printed) as Arc<dyn Collection>;
    let resource = (&printed.pods.resource, &printed.pods.fields);
    let info = RequestInfo::parse(&http::Method::GET, PATH, QUERY);
    let shutdown = Shutdown::new(shutdown::Config::default());
    let all = async {
        let answer = server::read_authoritative(
            &collection,
            resource,
            representation,
            &info,
            QUERY,
            &shutdown,
        );
        let mut body = answer.await.expect("a Table").into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.expect("no failure").into_data();
            bytes += data.map_or(0, |data| data.len());
        }
        bytes
    };
    support::runtime().block_on(all)
}

fn include_of(name: &str) -> IncludeObject {
    IncludeObject::parse(Some(name)).expect("a known value")
}

/// Lists pods with no row that was printed before.
#[divan::bench]
fn first(bencher: Bencher<'_, '_>) {
    let (pods, include) = (Pods::filled(), IncludeObject::Metadata);
    bencher
        .with_inputs(|| pods.printed(include))
        .bench_local_values(|collection| list(&collection, include));
}

/// Lists pods with rows that were printed before.
#[divan::bench(args = ["None", "Metadata", "Object"])]
fn again(bencher: Bencher<'_, '_>, include: &str) {
    let include = include_of(include);
    let collection = Pods::filled().printed(include);
    let bytes = list(&collection, include);
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| list(&collection, include));
}
