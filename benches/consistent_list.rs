//! Measures the CPU cost of a proof of freshness in kubefan, without the API server's part: `cargo
//! bench --bench consistent_list`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use kubefan::api::{ListPage, ResourceVersion, SelectableFields, WireFormat};
use kubefan::cache::{Reader, Writer};
use kubefan::codec::Decoder;
use kubefan::informer::{Freshness, FreshnessPolicy, ProofMethod, ProofRequest, relist_channel};
use kubefan::shutdown::Shutdown;
use kubefan::upstream::{FreshnessProbe, Scope};
use kubefan::{cache, shutdown, upstream};
use tokio::time::Instant;

/// The version that the cache has applied.
const APPLIED: ResourceVersion = ResourceVersion(10);
/// The current version of the API server, which is higher because other resources have changed.
const CURRENT: ResourceVersion = ResourceVersion(1_000);

fn main() {
    divan::main();
}

/// Replaces the API server: answers barriers and verification lists without a delay.
#[derive(Clone)]
struct InstantProbe {
    barrier: ResourceVersion,
    list: Bytes,
    decoder: Arc<Decoder>,
}

impl FreshnessProbe for InstantProbe {
    async fn barrier(&self) -> Result<ResourceVersion, upstream::Error> {
        Ok(self.barrier)
    }

    async fn verification_list(&self, _: &Scope) -> Result<ListPage, upstream::Error> {
        Ok(self.decoder.list(&self.list).expect("a list"))
    }
}

/// Returns the body of a verification list: a list of `count` objects with metadata only.
fn list(count: usize, version: ResourceVersion) -> Bytes {
    let item = |number| {
        format!(
            "{{\"metadata\":{{\"name\":\"web-{number:05}\",\"namespace\":\"shop\",\"uid\":\"uid-{number}\",\
             \"resourceVersion\":\"5\",\"labels\":{{\"app\":\"web\",\"shard\":\"{}\"}}}}}}",
            number % 100
        )
    };
    let items: Vec<_> = (0..count).map(item).collect();
    let head = format!(
        "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{}\"}},",
        version.0
    );
    format!("{head}\"items\":[{}]}}\n", items.join(",")).into()
}

fn decoder() -> Decoder {
    Decoder::new(WireFormat::Json, Arc::new(SelectableFields::default()))
}

fn filled(count: usize) -> (Writer, Reader) {
    let (mut writer, reader) = cache::cache(cache::Config::default());
    let mut relist = writer.relist();
    let page = decoder().list(&list(count, APPLIED)).expect("a list");
    page.items.into_iter().for_each(|item| relist.add(item));
    writer.replace(relist, APPLIED);
    (writer, reader)
}

/// Measures sequential proofs for a cache of `count` objects.
fn prove(bencher: Bencher<'_, '_>, count: usize, barrier: ResourceVersion, method: ProofMethod) {
    let (_writer, reader) = filled(count);
    let probe = InstantProbe {
        barrier,
        list: list(count, CURRENT),
        decoder: Arc::new(decoder()),
    };
    let (relist, _relists) = relist_channel();
    let shutdown = Shutdown::new(shutdown::Config::default());
    let freshness = Freshness::new(probe, reader, relist, FreshnessPolicy::Strict, shutdown);
    let request = ProofRequest {
        selection: Arc::default(),
        scope: Scope::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let proof = freshness.prove(request.clone(), Instant::now(), Duration::ZERO);
        let proof = runtime.block_on(proof).expect("a proof");
        assert_eq!(proof.method, method);
        proof
    });
}

/// Measures proofs with a barrier that returns the version that the cache has applied,
/// as on a busy resource.
#[divan::bench(args = [1_000, 5_000])]
fn proof_by_barrier(bencher: Bencher<'_, '_>, count: usize) {
    prove(bencher, count, APPLIED, ProofMethod::Barrier);
}

/// Measures proofs with a barrier that is ahead of the cache, so that a verification list is
/// compared.
#[divan::bench(args = [1, 100, 5_000])]
fn proof_by_verification_list(bencher: Bencher<'_, '_>, count: usize) {
    prove(bencher, count, CURRENT, ProofMethod::VerificationList);
}
