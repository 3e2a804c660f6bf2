//! The differential tests: each request in the tables of tests/differential is sent to a real API
//! server directly and through kubefan, and both answers must be equal.
//!
//! [`allowed`] lists the allowed differences. A row also contains how kubefan must answer: `cache`,
//! `rejected` (kubefan refuses the request itself), or the reason for forwarding it; [`answerers`]
//! reads from kubefan's log how it did answer. [`sessions`] compares again what a session answers.
//! tests/differential/README.md maps each case of the read contract to rows and tests.

mod allowed;
mod answerers;
mod fixture;
mod older;
mod pages;
mod sessions;
mod table;

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use answerers::answerers;
use bytes::Bytes;
use fixture::Fixture;
use futures::StreamExt;
use table::{Case, RequestedFormat, Row};

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::frames::{Format, decode_list};
use crate::support::poll::within;

/// Returns the comparable text of the body of an answer that is not a watch.
pub(crate) fn comparable_body(target: &str, answer: &Answer) -> String {
    allowed::body(target, false, answer)
}

/// The deadline of a request, generous enough for a slow machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The number of cases that run concurrently; most of them wait for the end of a watch.
const AT_ONCE: usize = 128;
const TABLES: [&str; 10] = [
    "urls.txt",
    "lists.txt",
    "labels.txt",
    "fields.txt",
    "watches.txt",
    "history.txt",
    "formats.txt",
    "errors.txt",
    "recorded.txt",
    "shards.txt",
];
/// The number of cases that are compared once more. If more come too late, the others fail, because
/// a busy machine is not the reason.
const MOST_LATE: usize = 20;
/// Added to the number of a case that is compared once more.
const AGAIN: usize = 1_000_000;
/// The tables with requests that are sent after etcd was compacted.
const COMPACTED: [&str; 1] = ["compacted.txt"];

/// A case and its two answers: from the API server directly and through kubefan.
struct ComparedCase<'a> {
    number: usize,
    case: Case<'a>,
    target: String,
    direct: Answer,
    through: Answer,
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn every_read_is_answered_as_by_the_api_server() {
    let fixture = Fixture::start().await;
    let rows: Vec<Row> = TABLES.into_iter().flat_map(table::rows).collect();
    let (rows, left_out) = older::without_differences(rows, fixture.server.minor());
    for reason in left_out {
        print(&format!("differential: {reason}\n"));
    }
    let compacted: Vec<Row> = COMPACTED.into_iter().flat_map(table::rows).collect();
    let mut compared = run(&fixture, &rows, 0).await;
    let mut walked = pages::all(&fixture).await;
    walked.extend(pages::of_one_namespace(&fixture).await);
    walked.extend(pages::of_a_state_that_passed(&fixture).await);
    fixture.server.compact().await;
    compared.extend(run(&fixture, &compacted, compared.len()).await);
    pages::after_a_compaction(&fixture).await;

    let log = answerers(&fixture.kubefan.log());
    for id in walked {
        assert_eq!(log.get(&id).map(String::as_str), Some("cache"), "{id}");
    }
    check("differential", &compared, &log);
    assert!(compared.len() >= 600, "{} cases", compared.len());
}

/// Prints a summary of the cases of a test, and fails if one of them failed.
fn check(test: &str, compared: &[ComparedCase<'_>], log: &HashMap<String, String>) {
    let problems: Vec<String> = compared
        .iter()
        .filter_map(|compared| compared.problem(log))
        .collect();
    print_summary(test, compared, log, problems.len());
    assert!(
        problems.is_empty(),
        "{} of {} cases:\n\n{}",
        problems.len(),
        compared.len(),
        problems.join("\n")
    );
}

async fn run<'a>(fixture: &Fixture, rows: &'a [Row], first: usize) -> Vec<ComparedCase<'a>> {
    let cases = table::cases(rows);
    let numbered = cases.into_iter().enumerate();
    let compared = numbered.map(|(index, case)| compare(fixture, case, first + index));
    let mut compared: Vec<_> = futures::stream::iter(compared)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    compared.sort_by_key(|compared| compared.number);
    let log = answerers(&fixture.kubefan.log());
    let late = compared
        .iter_mut()
        .filter(|compared| compared.came_too_late(&log));
    for compared in late.take(MOST_LATE) {
        print(&format!(
            "differential: once more, alone: {}\n",
            compared.case.name()
        ));
        let again = compared.number + AGAIN;
        *compared = compare(fixture, compared.case.clone(), again).await;
    }
    compared
}

async fn compare<'a>(fixture: &Fixture, case: Case<'a>, number: usize) -> ComparedCase<'a> {
    let mut target = fixture
        .filled(&case.row.target, case.requested_format)
        .await;
    let (mut direct, mut through) = both(fixture, &case, &target, number).await;
    let is_watch = case.row.is_watch();
    let shown = |answer| allowed::comparable(&target, is_watch, true, answer);
    if is_watch
        && shown(&direct) != shown(&through)
        && let Some(longer) = table::with_more_time(&target)
    {
        // On a busy machine, the events may take longer than the watch's timeout.
        target = longer;
        (direct, through) = both(fixture, &case, &target, number).await;
    }
    ComparedCase {
        number,
        case,
        target,
        direct,
        through,
    }
}

/// Sends a case to the API server and through kubefan concurrently. For `if-none-match: {etag}`, it
/// first asks the API server for the current ETag.
async fn both(fixture: &Fixture, case: &Case<'_>, target: &str, number: usize) -> (Answer, Answer) {
    let mut headers = case.headers(number);
    let name = case.name();
    let client = fixture.direct(case);
    if let Some(condition) = headers.remove("if-none-match") {
        let tagged = client.send(case.row.method.clone(), target, &headers, Bytes::new());
        let tag = tagged.await.headers.remove("etag");
        let wanted = if condition == "{etag}" { tag } else { None };
        headers.insert("if-none-match", wanted.unwrap_or(condition));
    }
    let send = async |client: &Client| {
        let method = case.row.method.clone();
        let answer = client.send(method, target, &headers, Bytes::new());
        within(&name, LIMIT, answer).await
    };
    let through = fixture.through_for(case);
    tokio::join!(send(&client), send(&through))
}

impl ComparedCase<'_> {
    fn answerer<'l>(&self, log: &'l HashMap<String, String>) -> &'l str {
        let id = self.through.header("audit-id").unwrap_or_default();
        log.get(id)
            .map_or("unknown: not in the log", String::as_str)
    }

    /// Returns true if the case failed because a proof or an answer took too long, as it may on a
    /// busy machine.
    fn came_too_late(&self, log: &HashMap<String, String>) -> bool {
        let is_late = |answer: &Answer| matches!(answer.status.as_u16(), 429 | 503 | 504);
        let is_slow = self.answerer(log) == "unproven";
        (is_slow || is_late(&self.direct) || is_late(&self.through)) && self.problem(log).is_some()
    }

    /// Describes how the case failed; `None` if it passed.
    fn problem(&self, log: &HashMap<String, String>) -> Option<String> {
        let row = self.case.row;
        let answerer = self.answerer(log);
        let is_own = matches!(answerer, "cache" | "rejected");
        let shown = |answer| allowed::comparable(&self.target, row.is_watch(), is_own, answer);
        let (wanted, got) = (shown(&self.direct), shown(&self.through));
        let mut problems = Vec::new();
        if wanted != got {
            problems.push(difference(&wanted, &got));
        }
        if row.answerer.split('|').all(|expected| expected != answerer) {
            problems.push(format!("answered by: {answerer}, not {}", row.answerer));
        }
        if row
            .status
            .is_some_and(|status| self.direct.status != status)
        {
            problems.push(format!("the API server answered {}", self.direct));
        }
        if let Some(items) = row.items {
            let found = self.items();
            if found != items {
                problems.push(format!("{found} items, not {items}"));
            }
        }
        let problems = problems.join("\n");
        (!problems.is_empty()).then(|| format!("{}\n{problems}\n", self.case.name()))
    }

    fn items(&self) -> usize {
        let format = match self.case.requested_format {
            RequestedFormat::Protobuf | RequestedFormat::MetadataProtobuf => Format::Protobuf,
            _ => Format::Json,
        };
        match self.direct.status.is_success() {
            true => decode_list(format, &self.direct.body).items.len(),
            false => 0,
        }
    }
}

/// Returns both texts from shortly before their first difference.
fn difference(wanted: &str, got: &str) -> String {
    let same = wanted
        .chars()
        .zip(got.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let from = same.saturating_sub(60);
    let part = |text: &str| -> String { text.chars().skip(from).take(400).collect() };
    let (wanted, got) = (part(wanted), part(got));
    format!("--- directly\n{wanted}\n--- through kubefan\n{got}")
}

fn print_summary(
    test: &str,
    compared: &[ComparedCase<'_>],
    log: &HashMap<String, String>,
    differing: usize,
) {
    let count = |answerer| {
        let of = compared
            .iter()
            .filter(|case| case.answerer(log) == answerer);
        of.count()
    };
    let (all, cache, rejected) = (compared.len(), count("cache"), count("rejected"));
    let forwarded = all - cache - rejected;
    print(&format!(
        "{test}: {all} cases, {cache} from the cache, {forwarded} forwarded, \
         {rejected} rejected by kubefan itself, differing={differing}\n"
    ));
}

/// Writes directly to stderr, because the harness hides the output of passed tests.
fn print(line: &str) {
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("standard error takes a line");
}
