//! What the bill says is saved, beside what the same clients cost the API server directly.
//!
//! The clients run twice: directly, and through kubefan. In both runs they send the same requests
//! at the same rates, and in a run before these there are only the writes. What the API server used
//! in the direct run, without what it used for the writes alone, must be what the bill says is
//! saved. All reads can be answered by a cache. The objects, the selections and the rates are
//! others than in the measurements of the coefficients.

use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::{LIMIT, config_map, fill, is_cached, page, write};
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, private};
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::process;
use crate::support::settings::setting;

const PROGRAM: &str = "readers/v1.0";
const LIST: &str = "/api/v1/namespaces/read/configmaps?resourceVersion=0";
/// Programs that list once, and watch from the version of the list.
const INFORMERS: u32 = 100;
const BETWEEN_INFORMERS: Duration = Duration::from_millis(20);
const BETWEEN_WRITES: Duration = Duration::from_millis(100);
/// How long the open watches stay open after the load, so that they deliver its last events.
const AFTER: Duration = Duration::from_secs(2);
/// How long after the load the API server has counted everything.
const COUNTED: Duration = Duration::from_secs(5);

/// A request that is sent again and again.
struct Load {
    path: &'static str,
    format: Format,
    per_second: u32,
}

/// The first one starts the cache in JSON, because a GET starts none.
static LOADS: [Load; 5] = [
    Load {
        path: LIST,
        format: Format::Json,
        per_second: 4,
    },
    Load {
        path: "/api/v1/namespaces/read/configmaps/object-7?resourceVersion=0",
        format: Format::Json,
        per_second: 80,
    },
    Load {
        path: LIST,
        format: Format::Protobuf,
        per_second: 4,
    },
    // The most recent state.
    Load {
        path: "/api/v1/namespaces/read/configmaps",
        format: Format::Json,
        per_second: 4,
    },
    Load {
        path: "/api/v1/configmaps?resourceVersion=0&labelSelector=app%3Dapp-3",
        format: Format::Json,
        per_second: 10,
    },
];

/// What an API server has used: requests, objects in lists, events of watches, and seconds of CPU
/// time.
type Used = [f64; 4];

const NAMES: [&str; 4] = [
    "requests",
    "objects in lists",
    "watch events",
    "CPU seconds",
];
/// By how much what is saved may differ from what was used.
const ERRORS: [f64; 4] = [0.05, 0.05, 0.1, 0.3];

/// Returns the sum of a metric of the API server over all series of ConfigMaps.
async fn of_config_maps(server: &ApiServer, metric: &str) -> f64 {
    server.metric(metric, &[("resource", "configmaps")]).await
}

/// Returns what the API server has used so far, for reads of ConfigMaps and in CPU time.
async fn used(server: &ApiServer) -> Used {
    let mut requests = 0.0;
    for verb in ["GET", "LIST", "WATCH"] {
        let labels = [("resource", "configmaps"), ("verb", verb)];
        requests += server.metric("apiserver_request_total", &labels).await;
    }
    let from_cache = of_config_maps(server, "apiserver_cache_list_returned_objects_total").await;
    let from_etcd = of_config_maps(server, "apiserver_storage_list_returned_objects_total").await;
    let events = of_config_maps(server, "apiserver_watch_events_total").await;
    let cpu = process::cpu(server.pid());
    [requests, from_cache + from_etcd, events, cpu]
}

/// Sends a load for `seconds`.
async fn send(client: Client, load: &'static Load, seconds: u32) {
    let client = client.with("accept", load.format.media_type());
    let mut clock = interval(Duration::from_secs(1) / load.per_second);
    for _ in 0..load.per_second * seconds {
        clock.tick().await;
        let (status, _) = client.drain(load.path).await;
        assert_eq!(status, 200, "{}", load.path);
    }
}

/// Lists once, and watches until shortly after `end`.
async fn inform(client: Client, number: u32, end: Instant) {
    sleep(BETWEEN_INFORMERS * number).await;
    let list = client.get(LIST).await.ok();
    let version = list.json()["metadata"]["resourceVersion"].take();
    let version = version.as_str().expect("a version");
    let lasts = end.saturating_duration_since(Instant::now()) + AFTER;
    let seconds = lasts.as_secs();
    let watch = format!(
        "/api/v1/namespaces/read/configmaps?watch=1&resourceVersion={version}\
         &timeoutSeconds={seconds}"
    );
    let (status, bytes) = client.drain(&watch).await;
    assert!(status == 200 && bytes > 0, "{status}, {bytes} bytes");
}

/// Writes for `seconds`, and runs the clients meanwhile, if `client` is given. Returns what the API
/// server has used.
async fn run(server: &ApiServer, client: Option<&Client>, seconds: u32) -> Used {
    let before = used(server).await;
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let mut tasks = JoinSet::new();
    let path = "/api/v1/namespaces/read/configmaps/object-0".to_owned();
    tasks.spawn(write(server.client(), path, 1_000, BETWEEN_WRITES, end));
    if let Some(client) = client {
        for load in &LOADS {
            tasks.spawn(send(client.clone(), load, seconds));
        }
        for number in 0..INFORMERS {
            tasks.spawn(inform(client.clone(), number, end));
        }
    }
    tasks.join_all().await;
    // All runs last as long, because an idle API server uses CPU time, too.
    sleep_until(end + COUNTED).await;
    let after = used(server).await;
    std::array::from_fn(|index| after[index] - before[index])
}

/// Returns the row of the clients in the bill, when all their watches have ended.
async fn row(kubefan: &Kubefan) -> Value {
    eventually("the end of the watches", LIMIT, async || {
        let page = page(kubefan, "bill").await;
        let mut rows = page["clients"].as_array().expect("a list").iter();
        let row = rows.find(|row| row["client"]["userAgent"] == PROGRAM);
        let row = row.ok_or("no row")?;
        let has_ended = row["openWatches"] == 0;
        has_ended.then(|| row.clone()).ok_or("open watches")
    })
    .await
}

/// `KUBEFAN_SECONDS` sets the time of each of the three runs (60).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes four minutes, and needs a release build"]
async fn what_is_saved_is_what_the_same_clients_cost_directly() {
    let seconds = setting("KUBEFAN_SECONDS", 60);
    let server = private().await;
    let objects = |count: usize| {
        (0..count).map(|number| config_map(number, &format!("app-{}", number % 20), 1_000))
    };
    fill(&server, "read", objects(400)).await;
    fill(&server, "more", objects(2_000)).await;
    sleep(COUNTED).await;
    let writes = run(&server, None, seconds).await;
    let named = |client: Client| client.with("user-agent", PROGRAM);
    let direct = run(&server, Some(&named(server.client())), seconds).await;

    let flags = ["--tls-self-signed", "--auth", "caller"];
    let kubefan = Kubefan::start(&server, &flags).await;
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let connector = Connector::tls(&authority, None, &["http/1.1"]);
    let client = Client::new(kubefan.url(), connector).as_token(ADMIN);
    let starter = client.with("user-agent", "starter/v1.0");
    for load in &LOADS {
        let starter = starter.with("accept", load.format.media_type());
        is_cached(&starter, load.path).await;
    }
    let cpu = kubefan.cpu();
    let through = run(&server, Some(&named(client)), seconds).await;
    let cpu = kubefan.cpu() - cpu;
    let row = row(&kubefan).await;

    let saved = &row["total"]["saved"];
    let saved = ["requests", "objects", "events", "estimatedCpuSeconds"]
        .map(|name| saved[name].as_f64().expect("a number"));
    println!("| | directly | saved, by the bill | ratio | allowed error | left through kubefan |");
    println!("|---|---|---|---|---|---|");
    let mut faults = Vec::new();
    for (index, name) in NAMES.into_iter().enumerate() {
        let direct = direct[index] - writes[index];
        let through = through[index] - writes[index];
        let (saved, error) = (saved[index], ERRORS[index]);
        let ratio = saved / direct;
        println!(
            "| {name} | {direct:.2} | {saved:.2} | {ratio:.3} | {:.0} % | {through:.2} |",
            error * 1e2
        );
        if (ratio - 1.0).abs() > error {
            faults.push(format!("{name}: {ratio:.3}"));
        }
    }
    println!("kubefan used {cpu:.2} s of CPU time");
    assert!(faults.is_empty(), "{faults:?}: {row}");
}
