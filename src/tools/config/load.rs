//! Turns the flags of `kubefan load` into a checked [`LoadConfig`], or reports all problems.

use std::path::PathBuf;

use kubefan_core::api::WireFormat;
use kubefan_core::upstream::ClientConfig;
use kubefan_proxy::config::address::flag_problem;
use kubefan_proxy::config::{Problem, Problems};

use super::{LoadArgs, LoadFormat};
use crate::load;
use crate::load::{Protocol, SelectorTemplate, TargetServer};

/// Watchers per HTTP/2 connection if `--connections` is not given. API servers limit the concurrent
/// streams of a connection.
const STREAMS: u32 = 100;
/// The largest values of `--watchers` and `--window`, of `--objects`, of `--rate` (writes per
/// second) and of `--object-size` (bytes). API servers accept no larger objects; the other limits
/// are above what a machine can do.
const MAX_WATCHERS: u32 = 1_000_000;
const MAX_OBJECTS: u32 = 1_000_000;
const MAX_RATE: f64 = 1_000_000.0;
const MAX_OBJECT_SIZE: usize = 1 << 20;

/// A checked configuration of `kubefan load`.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// The test to run.
    pub load: load::Config,
    /// Where to write the report as JSON; `None` for nowhere.
    pub json: Option<PathBuf>,
    /// Where to write the report as an HTML page; `None` for nowhere.
    pub html: Option<PathBuf>,
}

impl TryFrom<&LoadArgs> for LoadConfig {
    type Error = Problems;

    fn try_from(args: &LoadArgs) -> Result<Self, Problems> {
        let mut problems = count_problems(args);
        let selector = args.selector_per_watcher.as_deref();
        let selector = selector.map(str::parse::<SelectorTemplate>).transpose();
        let selector = selector.unwrap_or_else(|problem| {
            problems.push(flag_problem("--selector-per-watcher", problem));
            None
        });
        let rate = rate(&args.rate).unwrap_or_else(|problem| {
            problems.push(flag_problem("--rate", problem));
            None
        });
        if args.window.is_some() && rate.is_some() {
            let problem = "works only with --rate max; leave it out, or add --rate max";
            problems.push(flag_problem("--window", problem.to_owned()));
        }
        if let Some(selector) = &selector {
            problems.extend(selector_problems(args, selector));
        }
        problems.extend(url_problems(args));
        if let Some(namespace) = &args.namespace
            && !is_name(namespace)
        {
            let problem = format!(
                "{namespace:?} is not a namespace name; use lower-case letters, digits and -"
            );
            problems.push(flag_problem("--namespace", problem));
        }
        if !problems.is_empty() {
            return Err(Problems::new(problems));
        }
        Ok(Self {
            load: load_config(args, selector, rate),
            json: args.json.clone(),
            html: args.html.clone(),
        })
    }
}

fn load_config(
    args: &LoadArgs,
    selector: Option<SelectorTemplate>,
    rate: Option<f64>,
) -> load::Config {
    load::Config {
        watched: watch_target(args),
        compared: compare_target(args),
        written: write_target(args),
        resource: args.resource.clone(),
        namespace: args.namespace.clone(),
        all_namespaces: args.all_namespaces,
        watchers: args.watchers,
        connections: args.connections.unwrap_or(args.watchers.div_ceil(STREAMS)),
        protocol: match args.http {
            1 => Protocol::Http1,
            _ => Protocol::Http2,
        },
        format: match args.format {
            LoadFormat::Json => WireFormat::Json,
            LoadFormat::Protobuf => WireFormat::Protobuf,
        },
        selector,
        rate,
        window: args.window,
        objects: args.objects,
        object_size: args.object_size,
        duration: args.duration,
        list_storm: args.list_storm,
        slow_watchers: args.slow_watchers,
        watch_list: args.watch_list,
        resume: args.resume,
        threads: args.threads,
    }
}

fn count_problems(args: &LoadArgs) -> Vec<Problem> {
    let connections = args.connections.unwrap_or(1);
    let limits = [
        ("--watchers", args.watchers, 1, MAX_WATCHERS),
        ("--connections", connections, 1, args.watchers.max(1)),
        ("--objects", args.objects, 1, MAX_OBJECTS),
        ("--window", args.window.unwrap_or(1), 1, MAX_WATCHERS),
        ("--list-storm", args.list_storm, 0, 10_000),
        ("--slow-watchers", args.slow_watchers, 0, 100_000),
        ("--threads", args.threads, 1, 256),
    ];
    let mut problems = Vec::new();
    let mut add = |flag, problem| problems.push(flag_problem(flag, problem));
    for (flag, value, least, most) in limits {
        if value < least || value > most {
            add(flag, format!("{value} is not from {least} to {most}"));
        }
    }
    if args.http == 1 && args.connections.is_some_and(|value| value != args.watchers) {
        let problem = "over HTTP/1.1 each watcher has its own connection; leave it out";
        add("--connections", problem.to_owned());
    }
    let size = args.object_size;
    if size > MAX_OBJECT_SIZE {
        let problem = format!("{size} bytes are more than an API server accepts (1Mi)");
        add("--object-size", problem);
    }
    if args.duration.is_zero() {
        let problem = "0 is too short; use a duration such as 30s";
        add("--duration", problem.to_owned());
    }
    problems
}

/// Parses the writes per second; `None` for as many as possible.
fn rate(text: &str) -> Result<Option<f64>, String> {
    let number = match text {
        "max" | "0" => return Ok(None),
        number => number.parse::<f64>().ok(),
    };
    match number {
        Some(rate) if rate > 0.0 && rate <= MAX_RATE => Ok(Some(rate)),
        _ => Err(format!(
            "{text:?} is not a number of writes per second such as 20 or 0.5, nor max"
        )),
    }
}

fn selector_problems(args: &LoadArgs, selector: &SelectorTemplate) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add_problem = |flag, problem| problems.push(flag_problem(flag, problem));
    if let Some(field) = selector.pod_field()
        && !matches!(args.resource.as_str(), "pods" | "pod" | "po")
    {
        let problem = format!("only pods have {field}; add --resource pods");
        add_problem("--selector-per-watcher", problem);
    }
    if selector.is_by_name() {
        let most = if selector.is_per_watcher() {
            args.watchers
        } else {
            1
        };
        if args.objects > most {
            let problem = format!("only {most} objects can have names that {selector} selects");
            add_problem("--objects", problem);
        }
    }
    problems
}

fn url_problems(args: &LoadArgs) -> Vec<Problem> {
    let urls = [
        ("--server", &args.server),
        ("--write-server", &args.write_server),
        ("--compare", &args.compare),
        ("--metrics-url", &args.metrics_url),
        ("--compare-metrics-url", &args.compare_metrics_url),
        ("--write-metrics-url", &args.write_metrics_url),
    ];
    let mut problems = Vec::new();
    let mut add = |flag, problem| problems.push(flag_problem(flag, problem));
    for (flag, url) in urls {
        if let Some(url) = url.as_ref().filter(|url| !is_url(url)) {
            let problem = format!("{url:?} is not a URL such as https://127.0.0.1:6443");
            add(flag, problem);
        }
    }
    let is_compared = args.compare.is_some() || args.compare_kubeconfig.is_some();
    let describes_compared = args.compare_server_pid.is_some()
        || args.compare_metrics_url.is_some()
        || args.compare_name.is_some();
    if !is_compared && describes_compared {
        let problem = "is missing; --compare-server-pid, --compare-metrics-url and --compare-name describe the server to compare with";
        add("--compare", problem.to_owned());
    }
    let is_written = args.write_server.is_some() || args.write_kubeconfig.is_some();
    if !is_written && (args.write_server_pid.is_some() || args.write_metrics_url.is_some()) {
        let problem = "is missing; --write-server-pid and --write-metrics-url describe the server to write to";
        add("--write-server", problem.to_owned());
    }
    problems
}

fn is_url(text: &str) -> bool {
    let uri: Result<http::Uri, _> = text.parse();
    uri.is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
}

fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_odd_end = text.starts_with('-') || text.ends_with('-');
    (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && !is_odd_end
}

fn watch_target(args: &LoadArgs) -> TargetServer {
    TargetServer {
        client: ClientConfig {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            server: args.server.clone(),
            token_file: args.token_file.clone(),
            ..ClientConfig::default()
        },
        name: args.name.clone(),
        server_pid: args.server_pid,
        metrics_url: args.metrics_url.clone(),
    }
}

fn compare_target(args: &LoadArgs) -> Option<TargetServer> {
    let client = other_server(args, &args.compare, &args.compare_kubeconfig)?;
    Some(TargetServer {
        client,
        name: args.compare_name.clone(),
        server_pid: args.compare_server_pid,
        metrics_url: args.compare_metrics_url.clone(),
    })
}

/// Returns the server to write to. If it has the client configuration of the second server, both
/// are one server: its figures come from the second server's source unless flags say otherwise.
fn write_target(args: &LoadArgs) -> Option<TargetServer> {
    let client = other_server(args, &args.write_server, &args.write_kubeconfig)?;
    let compared = compare_target(args).filter(|compared| compared.client == client);
    let target = compared.unwrap_or_else(|| TargetServer {
        client,
        ..TargetServer::default()
    });
    match (&args.write_server_pid, &args.write_metrics_url) {
        (None, None) => Some(target),
        (server_pid, metrics_url) => Some(TargetServer {
            server_pid: *server_pid,
            metrics_url: metrics_url.clone(),
            ..target
        }),
    }
}

/// Returns how to reach the server for writes or for the comparison: with the
/// credentials in `kubeconfig` if it is given, or else with those for the watched
/// server. `None` if neither argument is given.
fn other_server(
    args: &LoadArgs,
    server: &Option<String>,
    kubeconfig: &Option<PathBuf>,
) -> Option<ClientConfig> {
    let server = server.clone();
    match (server, kubeconfig) {
        (None, None) => None,
        (server, Some(kubeconfig)) => Some(ClientConfig {
            kubeconfig: Some(kubeconfig.clone()),
            server,
            ..ClientConfig::default()
        }),
        (server, None) => Some(ClientConfig {
            server,
            ..watch_target(args).client
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Command;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn parse(flags: &str) -> Result<LoadConfig, String> {
        let words = ["kubefan", "load"]
            .into_iter()
            .chain(flags.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        match line.command {
            Command::Load(load) => {
                LoadConfig::try_from(&*load).map_err(|problems| problems.to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_problem_is_reported_with_a_valid_value() {
        for (flags, parts) in [
            (
                "--watchers 0 --objects 0",
                &["--watchers: 0 is not from 1", "--objects: 0"][..],
            ),
            (
                "--watchers 5 --connections 6",
                &["--connections: 6 is not from 1 to 5"],
            ),
            (
                "--http 1 --connections 7",
                &["--connections: over HTTP/1.1 each watcher"],
            ),
            ("--http 3", &["3 is not in 1..=2"]),
            (
                "--rate fast",
                &[
                    "--rate: \"fast\" is not a number of writes per second such as 20 or 0.5, nor max",
                ],
            ),
            ("--rate -1", &["unexpected argument"]),
            ("--window 0 --rate max", &["--window: 0 is not from 1"]),
            ("--window 16", &["--window: works only with --rate max"]),
            (
                "--duration 0s",
                &["--duration: 0 is too short; use a duration such as 30s"],
            ),
            (
                "--object-size 2Mi",
                &["--object-size: 2097152 bytes are more"],
            ),
            (
                "--selector-per-watcher app",
                &["--selector-per-watcher: \"app\" is not KEY=VALUE"],
            ),
            (
                "--selector-per-watcher spec.nodeName=a",
                &["only pods have spec.nodeName; add --resource pods"],
            ),
            (
                "--selector-per-watcher metadata.name=a-{i} --watchers 3",
                &["--objects: only 3 objects can have names that metadata.name=a-{i} selects"],
            ),
            (
                "--server here",
                &["--server: \"here\" is not a URL such as https://127.0.0.1:6443"],
            ),
            (
                "-n Shop",
                &["--namespace: \"Shop\" is not a namespace name"],
            ),
            ("--compare-server-pid 1", &["--compare: is missing"]),
            ("--compare-name b", &["--compare: is missing"]),
            ("--write-server-pid 1", &["--write-server: is missing"]),
            (
                "--write-server http://a --write-metrics-url x",
                &["--write-metrics-url: \"x\" is not a URL"],
            ),
            ("--format yaml", &["possible values: json, protobuf"]),
        ] {
            let message = parse(flags).expect_err(flags);
            for part in parts {
                assert!(message.contains(part), "{flags}: {message}");
            }
        }
    }

    #[test]
    fn omitted_flags_have_their_defaults() {
        let config = parse("--watchers 250").expect("a configuration").load;
        assert_eq!((config.connections, config.protocol), (3, Protocol::Http2));
        assert_eq!((config.objects, config.object_size), (20, 2048));
        assert!(config.watched.client == ClientConfig::default());
        assert!(config.compared.is_none() && config.written.is_none());
        assert_eq!(config.rate, Some(20.0));
        assert_eq!(parse("--rate max").expect("a rate").load.rate, None);
        assert_eq!(parse("--rate 0").expect("a rate").load.rate, None);
    }

    #[test]
    fn each_server_gets_its_own_credentials() {
        let config =
            parse("--kubeconfig k --server http://a --compare http://b --write-kubeconfig w");
        let config = config.expect("a configuration").load;
        let compared = config.compared.expect("a server to compare with").client;
        let named = |client: &ClientConfig| {
            let kubeconfig = client
                .kubeconfig
                .as_ref()
                .map(|path| path.display().to_string());
            (
                kubeconfig.unwrap_or_default(),
                client.server.clone().unwrap_or_default(),
            )
        };
        assert_eq!(
            named(&config.watched.client),
            ("k".into(), "http://a".into())
        );
        assert_eq!(named(&compared), ("k".into(), "http://b".into()));
        assert_eq!(
            named(&config.written.expect("a server for writes").client),
            ("w".into(), String::new())
        );
    }

    #[test]
    fn the_server_to_write_to_is_measured_like_the_second_one_if_it_is_the_same() {
        let common = "--server http://a --write-kubeconfig w --compare-server-pid 7";
        for (flags, pid, metrics) in [
            ("--compare-kubeconfig w", Some(7), None),
            ("--compare-kubeconfig v", None, None),
            ("--compare-kubeconfig w --write-server-pid 8", Some(8), None),
            (
                "--compare-kubeconfig w --write-metrics-url http://m",
                None,
                Some("http://m"),
            ),
        ] {
            let config = parse(&format!("{common} {flags}")).expect(flags).load;
            let written = config.written.expect("a server to write to");
            assert_eq!(written.server_pid, pid, "{flags}");
            assert_eq!(written.metrics_url.as_deref(), metrics, "{flags}");
        }
    }
}
