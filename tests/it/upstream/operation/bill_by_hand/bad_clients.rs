//! Ten bad clients and a good one: each bad one is first in its column, and the bill has what they
//! count themselves.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::programs::{Credentials, GROUP, PROGRAMS, Program, Sender};
use super::{LIMIT, config_map, fill, page, permit, write};
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::setting;

/// With strict reads, GETs of one client are forwarded, and the GET loop would be first among the
/// forwards, too.
const FLAGS: [&str; 7] = [
    "--tls-self-signed",
    "--auth",
    "caller",
    "--resource",
    "configmaps",
    "--freshness",
    "session",
];
/// How soon each bad client must be first in its column, and have its advice.
const SOON: Duration = Duration::from_secs(10);
/// The bill is read for the last time by this much before the end of the load.
const BEFORE_END: Duration = Duration::from_secs(2);
/// The bill is made once per second.
const BETWEEN_READS: Duration = Duration::from_millis(200);
const NUMBERS: [&str; 3] = ["requests", "bytes", "events"];
/// By how much the bill and a client may differ.
const ERROR: f64 = 0.01;
/// By how much the shares of CPU time and the time of the process may differ.
const CPU_ERROR: f64 = 0.1;

/// When each program was as it must be for the first time, in seconds.
type Firsts = Vec<Option<f64>>;

/// Creates the objects. Lists of `huge` have more than 8 MiB, and `many` has those that a list
/// without an index is compared with.
async fn create_objects(server: &ApiServer) {
    let small = |length| move |number| config_map(number, "usual", length);
    fill(server, "quiet", std::iter::empty()).await;
    fill(server, "small", (0..300).map(small(100))).await;
    fill(server, "huge", (0..90).map(small(100_000))).await;
    fill(server, "changing", (0..1).map(small(100_000))).await;
    let many = (0..9_600).map(|number| {
        let app = if number < 5 { "rare" } else { "usual" };
        config_map(number, app, 10)
    });
    fill(server, "many", many).await;
}

/// Creates the programs, each with connections of its own.
fn senders(kubefan: &Kubefan) -> Vec<Arc<Sender>> {
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let senders = PROGRAMS.iter().map(|program| {
        let connector = Connector::tls(&authority, None, &["http/1.1"]);
        let client = Client::new(kubefan.url(), connector);
        Arc::new(Sender::new(program, &client))
    });
    senders.collect()
}

/// Starts the programs, and the writes that the watches report.
fn start(server: &ApiServer, senders: &[Arc<Sender>], end: Instant) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for sender in senders {
        tasks.spawn(Arc::clone(sender).run(end));
    }
    for (namespace, length, per_second) in [("changing", 100_000, 20), ("small", 100, 10)] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/object-0");
        let period = Duration::from_secs(1) / per_second;
        tasks.spawn(write(server.client(), path, length, period, end));
    }
    tasks
}

/// Returns true if `row` is that of the program.
fn is_of(row: &Value, program: &Program) -> bool {
    let client = &row["client"];
    match program.credentials {
        Credentials::Wrong => client["address"] == Ipv4Addr::LOCALHOST.to_string(),
        Credentials::OfReader | Credentials::OfStranger => {
            client["userAgent"] == program.product().as_str()
        }
    }
}

/// Returns the row of a program on the page of the bill.
fn row_of<'a>(page: &'a Value, program: &Program) -> Option<&'a Value> {
    let mut rows = page["clients"].as_array().expect("a list").iter();
    rows.find(|row| is_of(row, program))
}

/// Returns the row that is first in a column.
fn first_of<'a>(page: &'a Value, column: &str) -> Option<&'a Value> {
    let mut largest = page["largest"].as_array().expect("a list").iter();
    let largest = largest.find(|largest| largest["column"] == column)?;
    let position = largest["clients"][0].as_u64().expect("a position");
    page["clients"].get(usize::try_from(position).expect("a position"))
}

/// Returns what the page of the bill must show otherwise of a program, if anything.
fn fault(page: &Value, program: &Program) -> Option<String> {
    let name = program.name;
    let Some(row) = row_of(page, program) else {
        return Some(format!("{name} has no row"));
    };
    let advice = row["advice"].as_array().expect("a list").iter();
    let kinds: Vec<_> = advice
        .filter_map(|advice| advice["kind"].as_str())
        .collect();
    if kinds != program.advice {
        return Some(format!("{name} has {kinds:?}, not {:?}", program.advice));
    }
    let column = program.column?;
    match first_of(page, column) {
        Some(first) if is_of(first, program) => None,
        first => {
            let first = first.map(|first| &first["client"]);
            Some(format!("{first:?} is first in {column}, not {name}"))
        }
    }
}

/// Reads the bill from `began` to shortly before `end`. Returns when each program was as it must
/// be, and the last page.
async fn observe(
    kubefan: &Kubefan,
    senders: &[Arc<Sender>],
    (began, end): (Instant, Instant),
) -> (Firsts, Value) {
    let mut firsts: Firsts = vec![None; senders.len()];
    loop {
        let page = page(kubefan, "bill").await;
        for (sender, first) in senders.iter().zip(&mut firsts) {
            let program = sender.program;
            if first.is_none() && fault(&page, program).is_none() {
                *first = Some(began.elapsed().as_secs_f64());
            }
            let row = row_of(&page, program).filter(|_| program.advice.is_empty());
            let is_good = row.is_none_or(|row| row["advice"] == json!([]));
            assert!(is_good, "advice for {}: {row:?}", program.name);
        }
        if Instant::now() + BEFORE_END >= end {
            return (firsts, page);
        }
        sleep(BETWEEN_READS).await;
    }
}

/// Returns the numbers of a row.
fn numbers(row: &Value) -> [u64; 3] {
    NUMBERS.map(|name| row["total"][name].as_u64().expect("a number"))
}

/// Returns an error unless each program has counted what the bill has.
fn compare(page: &Value, senders: &[Arc<Sender>]) -> Result<(), String> {
    for sender in senders {
        let name = sender.program.name;
        let row = row_of(page, sender.program).ok_or_else(|| format!("{name} has no row"))?;
        let (own, billed) = (sender.counts(), numbers(row));
        for (own, billed) in own.into_iter().zip(billed) {
            if own.abs_diff(billed) as f64 > own as f64 * ERROR {
                return Err(format!("{name} has {own}, and not {billed}: {row}"));
            }
        }
        if row["openWatches"] != 0 {
            return Err(format!("{name} has an open watch"));
        }
    }
    Ok(())
}

fn print(page: &Value, senders: &[Arc<Sender>], firsts: &Firsts) {
    println!(
        "| client | column | first after | advice | requests: own, in the bill | bytes | events |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (sender, first) in senders.iter().zip(firsts) {
        let program = sender.program;
        let row = row_of(page, program).expect("a row");
        let pairs = sender.counts().into_iter().zip(numbers(row));
        let pairs: Vec<_> = pairs
            .map(|(own, billed)| format!("{own}, {billed}"))
            .collect();
        let first = first.map_or("–".to_owned(), |first| format!("{first:.1} s"));
        println!(
            "| {} | {} | {first} | {} | {} |",
            program.name,
            program.column.unwrap_or("–"),
            program.advice.join(", "),
            pairs.join(" | "),
        );
    }
}

/// Checks that the shares of CPU time add up to `process`, which the kernel counts, and the rows to
/// the share of clients.
fn check_cpu(page: &Value, process: f64) {
    let seconds = |value: &Value| value.as_f64().expect("a number");
    let shares = ["clientsSeconds", "ingestSeconds", "sharedSeconds"];
    let [clients, ingest, shared] = shares.map(|name| seconds(&page["cpu"][name]));
    println!(
        "kubefan's CPU time: {clients:.2} s for clients, {ingest:.2} s of other threads, \
         {shared:.2} s shared; {process:.2} s of the process"
    );
    let sum = clients + ingest + shared;
    assert!((sum / process - 1.0).abs() <= CPU_ERROR, "{sum}, {process}");
    let rows = page["clients"].as_array().expect("a list").iter();
    let rows: f64 = rows.map(|row| seconds(&row["total"]["cpuSeconds"])).sum();
    let rows = rows + seconds(&page["other"]["cpuSeconds"]);
    assert!((rows / clients - 1.0).abs() <= ERROR, "{rows}, {clients}");
}

/// `KUBEFAN_SECONDS` sets the time of the load (20). It is longer than the ten seconds in which
/// each bad client must be first.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute, and needs a release build"]
async fn each_bad_client_is_first_in_its_column_and_has_its_advice() {
    let time = Duration::from_secs(setting("KUBEFAN_SECONDS", 20));
    assert!(time > SOON + BEFORE_END, "KUBEFAN_SECONDS is too short");
    let tokens: String = PROGRAMS.iter().filter_map(Program::line_of_token).collect();
    let server = private_with_tokens(&tokens, &[]).await;
    permit(&server, GROUP).await;
    create_objects(&server).await;
    let kubefan = Kubefan::start(&server, &FLAGS).await;
    let senders = senders(&kubefan);
    for sender in &senders {
        sender.warm_up().await;
    }

    let began = Instant::now();
    let end = began + time;
    let load = start(&server, &senders, end);
    let (firsts, last) = observe(&kubefan, &senders, (began, end)).await;
    load.join_all().await;
    // The rest of the counts of an answer is added when it has ended.
    let counted = eventually("the counts of all clients", LIMIT, async || {
        let page = page(&kubefan, "bill").await;
        compare(&page, &senders).map(|()| page)
    })
    .await;
    let cpu = kubefan.cpu();

    print(&counted, &senders, &firsts);
    check_cpu(&counted, cpu);
    let mut faults: Vec<_> = PROGRAMS
        .iter()
        .filter_map(|program| fault(&last, program))
        .collect();
    for (program, first) in PROGRAMS.iter().zip(firsts) {
        let is_soon = first.is_some_and(|first| first <= SOON.as_secs_f64());
        if program.column.is_some() && !is_soon {
            faults.push(format!("{}: {first:?}", program.name));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
