//! Which reads of stock products a cache answers, and why the others are forwarded. Each product
//! runs for a minute behind a kubefan of its own, so its first reads find no caches. It is run by
//! hand with the programs that `tests/upstream/products/build` builds:
//!
//! ```sh
//! export KUBEFAN_PRODUCTS=$(tests/upstream/products/build)
//! KUBEFAN_TEST_BINARY=target/release/kubefan \
//!     cargo test --test it products -- --ignored --nocapture
//! ```
//!
//! It prints a table of the products, and the forwarded reads. `KUBEFAN_SECONDS` sets how long each
//! product runs.

mod running;
mod scene;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::time::Duration;

use self::running::{PRODUCTS, Place};
use self::scene::Scene;
use crate::support::programs::apiserver::ADMIN;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::setting;

const FLAGS: [&str; 3] = ["--tls-self-signed", "--auth", "caller"];
const READS: [&str; 3] = ["get", "list", "watch"];

/// Why kubefan did not answer a read from a cache, its verb, and its resource.
type Kind = [String; 3];

/// The reads of one product.
#[derive(Debug, Default)]
struct Reads {
    cached: u64,
    others: BTreeMap<Kind, u64>,
}

impl Reads {
    /// Takes the reads from kubefan's metrics.
    fn of(metrics: &str) -> Self {
        let mut reads = Self::default();
        let series = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("kubefan_requests_total{"));
        for line in series {
            let (labels, value) = line.rsplit_once("} ").expect("labels and a value");
            let count = value.parse::<f64>().expect("a number") as u64;
            let [verb, outcome, reason, resource] =
                ["verb", "outcome", "reason", "resource"].map(|name| label(labels, name));
            match outcome {
                _ if !READS.contains(&verb) => {}
                "cache" => reads.cached += count,
                _ => {
                    // A read that kubefan has rejected has no reason.
                    let why = if reason.is_empty() { outcome } else { reason };
                    let kind = [why, verb, resource].map(str::to_owned);
                    *reads.others.entry(kind).or_default() += count;
                }
            }
        }
        reads
    }

    fn total(&self) -> u64 {
        self.cached + self.others.values().sum::<u64>()
    }

    fn percent(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.total().max(1) as f64
    }

    /// Returns the product's row of the table: the most frequent reason first.
    fn row(&self, product: &str) -> String {
        let mut reasons = BTreeMap::<&str, u64>::new();
        for ([reason, ..], count) in &self.others {
            *reasons.entry(reason).or_default() += count;
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| Reverse(*count));
        let reasons: Vec<_> = reasons
            .into_iter()
            .map(|(reason, count)| format!("`{reason}` {:.0} %", self.percent(count)))
            .collect();
        let cached = self.percent(self.cached);
        let (total, reasons) = (self.total(), reasons.join(", "));
        format!("| {product} | {total} | {cached:.0} % | {reasons} |")
    }
}

/// Returns the value of a label; empty if there is no such label.
fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let value = labels.split(',').find_map(|label| {
        let value = label.strip_prefix(name)?.strip_prefix("=\"")?;
        value.strip_suffix('"')
    });
    value.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes ten minutes: KUBEFAN_PRODUCTS, KUBEFAN_SECONDS (60)"]
async fn measure_which_reads_of_products_the_cache_answers() {
    let folder = env::var_os("KUBEFAN_PRODUCTS").map(PathBuf::from);
    let folder = folder
        .expect("set KUBEFAN_PRODUCTS to the directory that tests/upstream/products/build prints");
    let time = Duration::from_secs(setting("KUBEFAN_SECONDS", 60));
    let scene = Scene::start(&folder).await;
    let mut rows = Vec::new();
    let mut idle = Vec::new();
    for product in PRODUCTS {
        let kubefan = Kubefan::start(&scene.server, &FLAGS).await;
        let place = Place {
            folder: &folder,
            assets: scene.server.assets(),
            kubeconfig: kubefan.kubeconfig(&User::Token(ADMIN)),
            objects: &scene.objects,
            time,
        };
        place.run(product).await;
        let reads = Reads::of(&kubefan.metrics().await);
        for ([reason, verb, resource], count) in &reads.others {
            println!("{}: {reason}, {verb} {resource}: {count}", product.name);
        }
        if reads.total() == 0 {
            idle.push(product.name);
        }
        rows.push(reads.row(product.name));
    }
    println!("| product | reads | from the cache | forwarded |\n|---|---|---|---|");
    println!("{}", rows.join("\n"));
    assert!(!scene.writer.is_finished(), "the writer has ended");
    assert!(
        idle.is_empty(),
        "these products have read nothing: {idle:?}"
    );
}
