//! `kubefan why`: asks a running kubefan which way a request would take.

mod kubectl_log;
mod text;

use std::io::{IsTerminal, Read as _};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use kubectl_log::{LoggedRequest, requests};
use kubefan_core::telemetry::{visible, visible_json};
use kubefan_proxy::admin_client;
use kubefan_proxy::admin_client::AdminClient;
use kubefan_proxy::identity::is_secret_header;
use kubefan_proxy::process::{Error, block_on_few_threads, print};
use kubefan_proxy::server::Explanation;
use tokio::time::sleep;

use super::args::WhyArgs;

/// The path of the endpoint.
const ENDPOINT: &str = "/admin/v1/why";
/// The most bytes that are read from standard input.
const MAX_INPUT: u64 = 64 << 20;
/// kubefan answers this many questions at once, and then one in each interval.
const BURST: usize = 10;
const INTERVAL: Duration = Duration::from_millis(110);

/// Prints which way the requests would take.
///
/// # Errors
///
/// [`Error::Usage`] for mistakes in the flags that name kubefan and the credentials;
/// [`Error::Failed`] if there is no request, or kubefan does not answer.
pub(super) fn why(args: &WhyArgs) -> Result<(), Error> {
    let requests = match args.path.as_deref() {
        Some("-") => from_stdin()?,
        None if !std::io::stdin().is_terminal() => from_stdin()?,
        Some(path) => vec![LoggedRequest {
            method: args.method.clone(),
            path: path.to_owned(),
            headers: args.headers.clone(),
        }],
        None => {
            let problem = "there is no request: give its path, or the output of kubectl -v=8 on \
                           standard input";
            return Err(anyhow!(problem).into());
        }
    };
    block_on_few_threads(explain(args, &requests))
}

/// Reads the requests in the output of `kubectl -v=8`.
fn from_stdin() -> anyhow::Result<Vec<LoggedRequest>> {
    let mut log = Vec::new();
    let read = std::io::stdin().take(MAX_INPUT).read_to_end(&mut log);
    read.context("cannot read standard input")?;
    let found = requests(&String::from_utf8_lossy(&log));
    ensure!(
        !found.is_empty(),
        "standard input has no request; kubectl writes them with -v=8 on standard error: \
         kubectl -v=8 get pods 2>&1 | kubefan why -"
    );
    Ok(found)
}

async fn explain(args: &WhyArgs, requests: &[LoggedRequest]) -> Result<(), Error> {
    let client = AdminClient::connect(&args.admin).await?;
    for (number, request) in requests.iter().enumerate() {
        if number >= BURST {
            sleep(INTERVAL).await;
        }
        let question = format!("{ENDPOINT}?{}", question(args, request));
        let answer = client.get(&question).await;
        let explanation: Result<Explanation, _> = answer
            .and_then(|json| serde_json::from_value(json).map_err(admin_client::Error::Malformed));
        let explanation = explanation.map_err(|error| failed(args, client.url(), error))?;
        let separator = if number == 0 || args.json { "" } else { "\n" };
        let text = match args.json {
            true => {
                let json = serde_json::to_string(&explanation).context("cannot print JSON")?;
                visible_json(&json).into_owned() + "\n"
            }
            false => text::text(&explanation),
        };
        print(&format!("{separator}{text}"));
    }
    Ok(())
}

/// Returns why there is no explanation. The words of kubefan may have names from the request, so what
/// a terminal would obey is escaped.
fn failed(args: &WhyArgs, url: &str, error: admin_client::Error) -> anyhow::Error {
    let is_unknown = matches!(error, admin_client::Error::Answered { code: 401, .. });
    let flags = match is_unknown && !args.admin.names_credentials() {
        true => "; --kubeconfig, --context or --token-file says which credentials to send",
        false => "",
    };
    let error = format!("{:#}", anyhow::Error::from(error));
    anyhow!("no explanation from {url}: {}{flags}", visible(&error))
}

/// Returns the query of the question about `request`. Values of headers with secrets are left out.
fn question(args: &WhyArgs, request: &LoggedRequest) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("method", &request.method);
    query.append_pair("path", &request.path);
    for header in request
        .headers
        .iter()
        .filter_map(|header| without_secret(header))
    {
        query.append_pair("header", &header);
    }
    let user = [("as", &args.user), ("asUid", &args.uid)];
    for (name, value) in user {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    query.extend_pairs(args.groups.iter().map(|group| ("asGroup", group)));
    query.extend_pairs(args.extra.iter().map(|extra| ("asExtra", extra)));
    query.finish()
}

/// Returns `header` as it is sent to kubefan; `None` if kubefan needs no such header. Of credentials
/// only their presence is sent.
fn without_secret(header: &str) -> Option<String> {
    let (name, _) = header.split_once(':')?;
    let name = name.trim();
    if name.eq_ignore_ascii_case("authorization") {
        return Some("Authorization: not sent".to_owned());
    }
    (!is_secret_header(name)).then(|| header.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        why: WhyArgs,
    }

    fn args(flags: &[&str]) -> WhyArgs {
        let words = std::iter::once("why").chain(flags.iter().copied());
        Program::try_parse_from(words).expect("clap accepts it").why
    }

    #[test]
    fn a_question_has_no_secrets() {
        let request = LoggedRequest {
            method: "GET".to_owned(),
            path: "/api/v1/pods?a=b&c".to_owned(),
            headers: [
                "Accept: application/json;as=Table",
                "authorization: Bearer secret",
                "Cookie: secret",
                "X-Remote-User: secret",
                "Sec-WebSocket-Protocol: secret",
                "malformed secret",
            ]
            .map(str::to_owned)
            .to_vec(),
        };
        let words = "--as jane --as-group dev --as-group ops --as-user-extra scopes=a";
        let args = args(&words.split(' ').collect::<Vec<_>>());
        let found = question(&args, &request);
        let expected = "method=GET&path=%2Fapi%2Fv1%2Fpods%3Fa%3Db%26c\
                        &header=Accept%3A+application%2Fjson%3Bas%3DTable\
                        &header=Authorization%3A+not+sent&as=jane&asGroup=dev&asGroup=ops\
                        &asExtra=scopes%3Da";
        assert_eq!(found, expected);
    }

    #[test]
    fn a_caller_that_is_not_known_learns_the_flags_of_credentials() {
        let refusal = |code, message: &str| admin_client::Error::Answered {
            code,
            message: message.to_owned(),
        };
        for (flags, error, expected) in [
            (
                "/version",
                refusal(401, "Unauthorized"),
                "no explanation from URL: kubefan answered 401: Unauthorized; --kubeconfig, \
                 --context or --token-file says which credentials to send",
            ),
            (
                "--token-file t /version",
                refusal(401, "Unauthorized"),
                "no explanation from URL: kubefan answered 401: Unauthorized",
            ),
            (
                "/version",
                refusal(403, "User \u{1b}[2J"),
                "no explanation from URL: kubefan answered 403: User \\u{1b}[2J",
            ),
        ] {
            let args = args(&flags.split(' ').collect::<Vec<_>>());
            assert_eq!(failed(&args, "URL", error).to_string(), expected);
        }
    }

    #[test]
    fn credentials_are_not_sent_in_plain_text_to_another_machine() {
        let flags = ["--token-file", "t", "--admin-url", "http://kubefan.example"];
        let args = args(&[&flags[..], &["/version"]].concat());
        let refused = why(&args).expect_err("it is refused");
        assert!(matches!(refused, Error::Usage(_)), "{refused}");
    }
}
