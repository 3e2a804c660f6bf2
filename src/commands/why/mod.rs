//! `kubefan why`: asks a running kubefan which way a request would take.

mod kubectl_log;
mod text;

use std::io::{IsTerminal, Read as _};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kubectl_log::{LoggedRequest, requests};
use kubefan_core::upstream;
use kubefan_core::upstream::{Client, ClientConfig};
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
            return Err(anyhow::anyhow!(problem).into());
        }
    };
    block_on_few_threads(async { Ok(explain(args, &requests).await?) })
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

async fn explain(args: &WhyArgs, requests: &[LoggedRequest]) -> anyhow::Result<()> {
    let client = Client::connect(config(args)?).await?;
    for (number, request) in requests.iter().enumerate() {
        if number >= BURST {
            sleep(INTERVAL).await;
        }
        let question = format!("{ENDPOINT}?{}", question(args, request));
        let answer = client.get_json::<Explanation>(&question).await;
        let explanation = answer.map_err(|error| failure(error, &args.admin_url))?;
        let separator = if number == 0 || args.json { "" } else { "\n" };
        let text = match args.json {
            true => serde_json::to_string(&explanation)? + "\n",
            false => text::text(&explanation),
        };
        print(&format!("{separator}{text}"));
    }
    Ok(())
}

/// Returns how kubefan's admin listener is reached.
fn config(args: &WhyArgs) -> anyhow::Result<ClientConfig> {
    let url = args.admin_url.trim_end_matches('/');
    let has_credentials =
        args.kubeconfig.is_some() || args.context.is_some() || args.token_file.is_some();
    if has_credentials && !url.starts_with("https://") && !is_loopback(url) {
        bail!("--admin-url: credentials are sent only over TLS, or on this machine: {url}");
    }
    Ok(ClientConfig {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        server: Some(url.to_owned()),
        token_file: args.token_file.clone(),
        ..ClientConfig::default()
    })
}

/// Returns true if the host of `url` is this machine.
fn is_loopback(url: &str) -> bool {
    let authority = url.strip_prefix("http://").unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    matches!(host, "127.0.0.1" | "localhost" | "[::1]")
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

fn failure(error: upstream::Error, url: &str) -> anyhow::Error {
    match error {
        upstream::Error::Answer { status, .. } => {
            anyhow::anyhow!("kubefan answered {}: {}", status.code, status.message)
        }
        error => anyhow::Error::from(error)
            .context(format!("cannot ask the admin listener of kubefan at {url}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> WhyArgs {
        WhyArgs {
            path: None,
            method: "GET".to_owned(),
            headers: Vec::new(),
            user: None,
            groups: Vec::new(),
            uid: None,
            extra: Vec::new(),
            admin_url: "http://127.0.0.1:8002".to_owned(),
            kubeconfig: None,
            context: None,
            token_file: None,
            json: false,
        }
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
        let args = WhyArgs {
            user: Some("jane".to_owned()),
            groups: vec!["dev".to_owned(), "ops".to_owned()],
            extra: vec!["scopes=a".to_owned()],
            ..args()
        };
        let found = question(&args, &request);
        let expected = "method=GET&path=%2Fapi%2Fv1%2Fpods%3Fa%3Db%26c\
                        &header=Accept%3A+application%2Fjson%3Bas%3DTable\
                        &header=Authorization%3A+not+sent&as=jane&asGroup=dev&asGroup=ops\
                        &asExtra=scopes%3Da";
        assert_eq!(found, expected);
    }

    #[test]
    fn credentials_are_sent_over_tls_or_on_this_machine() {
        for (url, is_sent) in [
            ("http://127.0.0.1:8002", true),
            ("http://localhost:8002/", true),
            ("http://[::1]:8002", true),
            ("https://kubefan.example:8002", true),
            ("http://kubefan.example:8002", false),
            ("http://127.0.0.1.example:8002", false),
        ] {
            let args = WhyArgs {
                admin_url: url.to_owned(),
                token_file: Some("token".into()),
                ..args()
            };
            assert_eq!(config(&args).is_ok(), is_sent, "{url}");
            let without = WhyArgs {
                token_file: None,
                ..args
            };
            assert!(config(&without).is_ok(), "{url}");
        }
    }
}
