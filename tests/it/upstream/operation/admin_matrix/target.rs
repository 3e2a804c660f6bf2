//! A kubefan whose admin listener is asked, and the checks of its answers.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method};
use http_body_util::BodyExt;

use super::askers::Asker;
use super::kinds::{BROWSERS, Kind, Reach};
use super::rows::{Need, Row};
use super::{LABEL, LIMIT, OBJECT, OtherClient, PROGRAM, USER};
use crate::support::clients::client::{Answer, Client};
use crate::support::clients::frames::{Format, WatchReader};
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::kubefan::Kubefan;

/// The requests at a time. The listener closes the oldest connection if there are more than 64.
const CONCURRENT: usize = 16;
/// The lists of the other client: enough for advice about it.
const LISTS: usize = 100;

/// A kubefan with one kind of admin listener, and another client of it.
pub(super) struct Target {
    kind: &'static Kind,
    /// An open watch of the other client. It is closed before kubefan ends.
    _watch: WatchReader,
    kubefan: Kubefan,
    url: String,
}

impl Target {
    /// Starts a kubefan, and lets the other client use it until the admin API shows that.
    pub(super) async fn start(
        server: &ApiServer,
        kind: &'static Kind,
        other: &OtherClient,
    ) -> Self {
        let kubefan = Kubefan::start(server, kind.flags).await;
        let client = Asker::unknown("the other client").token(&other.token);
        let client = client.client(kubefan.url(), kubefan.authority().as_deref());
        let client = client.with("user-agent", &format!("{PROGRAM}/v7.3.1"));
        let maps = &other.maps;
        let list = format!("{maps}?labelSelector={LABEL}%3Dx");
        for _ in 0..LISTS {
            client.get(&list).await.ok();
        }
        let object = format!("{maps}/{OBJECT}?resourceVersion=0");
        let object = client.get(&object).await;
        assert_eq!(object.status, 404, "{object}");
        let fields = format!("metadata.name%3D{OBJECT}");
        let watch = format!("{maps}?watch=1&resourceVersion=0&fieldSelector={fields}");
        let watch = client.watch(&watch, Format::Json).await;
        let target = Self {
            kind,
            _watch: watch.expect("a watch"),
            url: kubefan.admin_url().replace("0.0.0.0", "127.0.0.1"),
            kubefan,
        };
        target.shows_the_other_client().await;
        target
    }

    /// Waits until the admin API shows the other client to an admin. So a page that showed it to
    /// others would be noticed.
    async fn shows_the_other_client(&self) {
        let admin = self.client(&Asker::admin());
        for (name, sentinel, needs_user) in [
            ("clients", PROGRAM, false),
            ("events", PROGRAM, false),
            ("users", USER, true),
            ("bill", PROGRAM, true),
            ("advice", PROGRAM, true),
        ] {
            let is_user_known = self.kind.authenticates_clients;
            if self.kind.reach == Reach::Exposed || needs_user && !is_user_known {
                continue;
            }
            let path = format!("/admin/v1/{name}");
            eventually(name, LIMIT, async || {
                let page = ask(&admin, Method::GET, &path).await.to_string();
                page.contains(sentinel).then_some(()).ok_or(page)
            })
            .await;
        }
    }

    /// Creates a client of the admin listener, which asks for HTML as a browser does.
    fn client(&self, asker: &Asker) -> Client {
        let authority = self.kubefan.authority();
        let authority = authority.filter(|_| self.url.starts_with("https:"));
        let client = asker.client(&self.url, authority.as_deref());
        client.with("accept", "text/html")
    }

    /// Checks what the caller gets. Returns the number of answers.
    pub(super) async fn check(&self, rows: &[Row], asker: &Asker) -> usize {
        let client = self.client(asker);
        let expected = |row: &Row| self.kind.expected(row, asker);
        let cell = (asker.name, Method::GET);
        self.check_answers(rows, &client, cell, expected).await
    }

    /// Checks what the caller gets with the headers of browsers: no data if a foreign page may have
    /// caused the request. Returns the number of answers.
    pub(super) async fn check_browsers(&self, rows: &[Row], asker: &Asker) -> usize {
        let mut answers = 0;
        for browser in &BROWSERS {
            let mut client = self.client(asker);
            for (name, value) in browser.headers {
                client = client.with(name, value);
            }
            let passes = self.kind.passes(browser, asker);
            let expected = |row: &Row| match row.need == Need::Nothing || passes {
                true => self.kind.expected(row, asker),
                false => 403,
            };
            let name = format!("{}, {:?}", asker.name, browser.headers);
            let cell = (name.as_str(), Method::GET);
            answers += self.check_answers(rows, &client, cell, expected).await;
        }
        answers
    }

    /// Checks the answers to the requests that a browser sends before those of a foreign page.
    /// Returns their number.
    pub(super) async fn check_preflights(&self, rows: &[Row]) -> usize {
        let client = self
            .client(&Asker::unknown("a browser"))
            .with("origin", "https://pages.example")
            .with("access-control-request-method", "GET")
            .with("access-control-request-headers", "authorization");
        let expected = |row: &Row| match row.need {
            Need::Nothing => 405,
            _ => 403,
        };
        let cell = ("a browser", Method::OPTIONS);
        self.check_answers(rows, &client, cell, expected).await
    }

    async fn check_answers(
        &self,
        rows: &[Row],
        client: &Client,
        (name, method): (&str, Method),
        expected: impl Fn(&Row) -> u16,
    ) -> usize {
        let answers = rows
            .iter()
            .map(|row| ask(client, method.clone(), &row.path));
        let answers: Vec<_> = stream::iter(answers).buffered(CONCURRENT).collect().await;
        let flags = self.kind.flags.join(" ");
        for (row, answer) in rows.iter().zip(&answers) {
            let cell = format!("[{flags}], {name}: {method} {}", row.path);
            self.check_answer(&cell, row, answer, expected(row));
        }
        answers.len()
    }

    /// Checks the status, and that nothing is shown of the other client that the caller may not see.
    fn check_answer(&self, cell: &str, row: &Row, answer: &Answer, expected: u16) {
        assert_eq!(answer.status, expected, "{cell}: {answer}");
        for name in answer.headers.keys().map(|name| name.as_str()) {
            let is_allowed = name != "set-cookie" && !name.starts_with("access-control-");
            assert!(is_allowed, "{cell}: {name}");
        }
        let text = format!("{:?} {answer}", answer.headers);
        let is_user_known = self.kind.authenticates_clients;
        let shows_names = row.need == Need::Names && expected == 200 && is_user_known;
        assert_eq!(text.contains(USER), shows_names, "{cell}: {text}");
        let may_show_program = row.may_show_programs && expected == 200;
        assert!(
            may_show_program || !text.contains(PROGRAM),
            "{cell}: {text}"
        );
        for selected in [LABEL, OBJECT] {
            assert!(!text.contains(selected), "{cell}: {text}");
        }
    }
}

/// Sends a request, and again if it meets the limit of streams or of questions. Returns the first
/// event of a stream, and the whole of other answers.
async fn ask(client: &Client, method: Method, path: &str) -> Answer {
    eventually(path, LIMIT, async || {
        let answer = first_part(client, method.clone(), path);
        let answer = within(path, LIMIT, answer).await;
        match answer.status.as_u16() {
            429 => Err(answer.to_string()),
            _ => Ok(answer),
        }
    })
    .await
}

async fn first_part(client: &Client, method: Method, path: &str) -> Answer {
    let none = HeaderMap::new();
    let response = client.open(method, path, &none, Bytes::new()).await;
    let (head, mut body) = response.expect("an answer").into_parts();
    let content_type = head.headers.get("content-type");
    let is_stream = content_type.is_some_and(|value| value == "text/event-stream");
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.expect("no error").into_data();
        bytes.extend_from_slice(&data.unwrap_or_default());
        if is_stream && bytes.ends_with(b"\n\n") {
            break;
        }
    }
    Answer {
        status: head.status,
        headers: head.headers,
        body: bytes.into(),
    }
}
