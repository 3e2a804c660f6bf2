//! 10,000 users with 100,000 watches: the bill's memory stays within its limit, and each page of
//! the admin API is there in 100 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{LIMIT, config_map, fill, is_cached, page, permit, write};
use crate::limits::resident;
use crate::support::clients::client::{Client, chain};
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::setting;

const GROUP: &str = "many";
/// All watches are on these HTTP/2 connections, each with the watches of many users.
const CONNECTIONS: usize = 200;
/// Each namespace has one object, and each user watches the objects of one namespace.
const NAMESPACES: usize = 100;
/// Users that open their watches concurrently.
const OPENING: usize = 64;
const START: Duration = Duration::from_secs(600);
const PAGES: [&str; 9] = [
    "caches",
    "clients",
    "users",
    "bill",
    "advice",
    "freshness",
    "memory",
    "relists",
    "config",
];
const READS: u32 = 20;
/// A page is made once per second. A read that comes sooner would wait.
const BETWEEN_READS: Duration = Duration::from_millis(1_500);
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// The time for a page, in milliseconds.
const MOST_MILLISECONDS: f64 = 100.0;
/// The most clients with rows.
const MOST_ROWS: u64 = 1_024;
/// The bytes of an open watch in the bill, beside the rows (`docs/bill.md`).
const BYTES_OF_A_WATCH: u64 = 300;

/// What all users together have sent and received.
#[derive(Default)]
struct Received {
    requests: AtomicU64,
    /// The chunks of bodies. A watch gets its first event in one chunk.
    chunks: AtomicU64,
}

/// The numbers of users, and of watches of each.
#[derive(Clone, Copy)]
struct Scale {
    users: usize,
    watches_of_a_user: usize,
}

impl Scale {
    fn watches(self) -> u64 {
        (self.users * self.watches_of_a_user) as u64
    }
}

fn token(user: usize) -> String {
    format!("user-{user}-token")
}

fn path(number: usize) -> String {
    format!("/api/v1/namespaces/many-{}/configmaps", number % NAMESPACES)
}

/// Opens the watches of a user, one after another. While kubefan has questions about many users, it
/// may refuse some with 429.
async fn open(client: &Client, user: usize, watches: usize, received: &Received) -> Vec<Incoming> {
    let client = client
        .as_token(&token(user))
        .with("user-agent", "watcher/v1.0");
    let path = format!("{}?watch=1&resourceVersion=0", path(user));
    let none = HeaderMap::new();
    let mut bodies = Vec::new();
    for _ in 0..watches {
        let body = eventually(&path, LIMIT, async || {
            let opened = client.open(Method::GET, &path, &none, Bytes::new());
            let response = opened.await.map_err(|error| chain(&error))?;
            received.requests.fetch_add(1, Ordering::Relaxed);
            match response.status().as_u16() {
                200 => Ok(response.into_body()),
                status => Err(status.to_string()),
            }
        });
        bodies.push(body.await);
    }
    bodies
}

/// Reads a watch until its task is aborted.
async fn read(mut body: Incoming, received: Arc<Received>) {
    while let Some(Ok(_)) = body.frame().await {
        received.chunks.fetch_add(1, Ordering::Relaxed);
    }
    panic!("a watch has ended");
}

/// Opens all watches, and waits for the first event of each. Returns the clients, which hold the
/// connections, and the tasks that read the watches.
async fn open_all(
    kubefan: &Kubefan,
    scale: Scale,
    received: &Arc<Received>,
) -> (Vec<Client>, JoinSet<()>) {
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let clients = (0..CONNECTIONS).map(|_| {
        let connector = Connector::tls(&authority, None, &["h2"]);
        Client::http2(kubefan.url(), connector)
    });
    let clients: Vec<_> = clients.collect();
    let opened = stream::iter(0..scale.users).map(|user| {
        let client = &clients[user % CONNECTIONS];
        open(client, user, scale.watches_of_a_user, received)
    });
    let mut opened = opened.buffer_unordered(OPENING);
    let mut tasks = JoinSet::new();
    while let Some(bodies) = opened.next().await {
        for body in bodies {
            tasks.spawn(read(body, Arc::clone(received)));
        }
    }
    drop(opened);
    eventually("the first events", START, async || {
        let chunks = received.chunks.load(Ordering::Relaxed);
        (chunks >= scale.watches()).then_some(()).ok_or(chunks)
    })
    .await;
    (clients, tasks)
}

/// Returns the bytes of the bill and their limit, by the page of the memory.
async fn memory_of_bill(kubefan: &Kubefan) -> Option<[u64; 2]> {
    let page = page(kubefan, "memory").await;
    let kept = page["kept"].as_array().expect("a list").iter();
    let mut of_bill = kept.filter(|kept| kept["kind"] == "bill");
    let of_bill = of_bill.next()?;
    Some(["bytes", "limitBytes"].map(|name| of_bill[name].as_u64().expect("a number")))
}

/// Reads all pages of the admin API, and returns the milliseconds of each read of each page.
async fn read_pages(kubefan: &Kubefan) -> Vec<Vec<f64>> {
    let admin = kubefan.admin();
    let mut waits = vec![Vec::new(); PAGES.len()];
    for _ in 0..READS {
        sleep(BETWEEN_READS).await;
        for (page, waits) in PAGES.into_iter().zip(&mut waits) {
            let path = format!("/admin/v1/{page}");
            let began = Instant::now();
            admin.get(&path).await.ok();
            waits.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    waits
}

/// Returns the smallest value that the share `of` of all values does not exceed.
fn percentile(sorted: &[f64], of: f64) -> f64 {
    sorted[(sorted.len() as f64 * of).ceil() as usize - 1]
}

/// Prints how long each page took, and returns those that took too long.
fn print_pages(waits: Vec<Vec<f64>>) -> Vec<String> {
    println!("| page | p50 | p99 of {READS} reads |\n|---|---|---|");
    let mut faults = Vec::new();
    for (page, mut waits) in PAGES.into_iter().zip(waits) {
        waits.sort_by(f64::total_cmp);
        let [p50, p99] = [0.5, 0.99].map(|of| percentile(&waits, of));
        println!("| {page} | {p50:.1} ms | {p99:.1} ms |");
        if p99 > MOST_MILLISECONDS {
            faults.push(format!("{page}: {p99:.1} ms"));
        }
    }
    faults
}

/// Returns the number of clients with rows, and that of all requests, by the page of the bill.
async fn billed(kubefan: &Kubefan) -> [u64; 2] {
    let bill = page(kubefan, "bill").await;
    [&bill["clientsWithRows"], &bill["total"]["requests"]]
        .map(|number| number.as_u64().expect("a number"))
}

/// Checks what the bill has of the users: a limited number of rows, and all requests. There were
/// `before` requests before those of the users.
async fn check_bill(kubefan: &Kubefan, scale: Scale, before: u64, received: &Received) {
    let [rows, requests] = billed(kubefan).await;
    assert!(rows <= MOST_ROWS, "{rows} rows");
    let sent = received.requests.load(Ordering::Relaxed);
    assert_eq!(requests - before, sent, "requests in the bill");
    let [bytes, limit] = memory_of_bill(kubefan).await.expect("a budget");
    let most = limit + scale.watches() * BYTES_OF_A_WATCH;
    println!("the bill has {rows} rows and {bytes} bytes; the limit of the rows is {limit} bytes");
    assert!(bytes <= most, "{bytes} bytes, more than {most}");
}

/// Starts a kubefan with or without a bill, and opens all watches. Measures the pages if there is a
/// bill, and returns those that took too long.
async fn run(server: &ApiServer, scale: Scale, has_bill: bool) -> Vec<String> {
    let bill = format!("--bill={has_bill}");
    let flags = ["--tls-self-signed", "--auth", "caller", &bill];
    let kubefan = Kubefan::start(server, &flags).await;
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let connector = Connector::tls(&authority, None, &["http/1.1"]);
    let starter = Client::new(kubefan.url(), connector).as_token(&token(0));
    is_cached(&starter, &format!("{}?resourceVersion=0", path(0))).await;
    let requests = match has_bill {
        true => billed(&kubefan).await[1],
        false => 0,
    };
    let (before, began) = (resident(&kubefan), Instant::now());
    let received = Arc::new(Received::default());
    let (_clients, mut tasks) = open_all(&kubefan, scale, &received).await;
    let took = began.elapsed().as_secs_f64();
    let mebibytes = [before, resident(&kubefan)].map(|bytes| bytes as f64 / 1024.0 / 1024.0);
    let [before, after] = mebibytes;
    println!(
        "{} users with {} watches, bill: {has_bill}. Open after {took:.0} s; memory before \
         {before:.0} MiB, after {after:.0} MiB",
        scale.users,
        scale.watches(),
    );
    let mut faults = Vec::new();
    if has_bill {
        let end = Instant::now() + BETWEEN_READS * (READS + 2);
        let object = format!("{}/object-0", path(0));
        let writes = write(server.client(), object, 100, BETWEEN_WRITES, end);
        let (waits, ()) = tokio::join!(read_pages(&kubefan), writes);
        faults = print_pages(waits);
        check_bill(&kubefan, scale, requests, &received).await;
    }
    assert!(tasks.try_join_next().is_none(), "a watch has ended");
    tasks.shutdown().await;
    faults
}

/// `KUBEFAN_USERS` sets the number of users (10,000), and `KUBEFAN_WATCHES` that of all watches
/// (100,000).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and needs a release build"]
async fn the_bill_of_many_users_is_bounded_and_the_admin_api_answers_at_once() {
    let users = setting("KUBEFAN_USERS", 10_000);
    let watches: usize = setting("KUBEFAN_WATCHES", 100_000);
    let scale = Scale {
        users,
        watches_of_a_user: watches.div_ceil(users),
    };
    let lines = (0..users).map(|user| format!("{},user-{user},{user},{GROUP}\n", token(user)));
    let tokens: String = lines.collect();
    let server = private_with_tokens(&tokens, &[]).await;
    permit(&server, GROUP).await;
    for number in 0..NAMESPACES {
        let one = std::iter::once(config_map(0, "one", 100));
        fill(&server, &format!("many-{number}"), one).await;
    }
    let mut faults = run(&server, scale, true).await;
    faults.extend(run(&server, scale, false).await);
    assert!(faults.is_empty(), "{faults:?}");
}
