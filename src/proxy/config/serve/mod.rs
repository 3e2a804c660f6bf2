//! Turns the settings of `kubefan serve` into a checked [`ServeConfig`], or reports all problems.

mod access;
mod admin;
mod certificate;
mod checker;
mod collector;
mod expansion;
mod exposure;
mod limits;
mod resources;
mod rules;
mod tls;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use access::{access, with_budgets};
pub use admin::{AdminConfig, AdminTls};
use checker::Checker;
use expansion::Lookup;
use kubefan_core::informer::ResourceRules;
use kubefan_core::{informer, shutdown};
use limits::{connections, memory, requests};
pub use resources::Resources;
use resources::informers;
pub use tls::{Tls, default_tls_dir};

use super::problem::Problem;
use super::settings::Settings;
use super::sources::Sources;
use crate::{identity, ledger, net, server, traces};

/// A checked configuration of `kubefan serve`.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Kubeconfig of the API server; `None` for `KUBECONFIG`, `~/.kube/config`, or the pod's
    /// service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None` for its current context.
    pub context: Option<String>,
    /// As [`ClientConfig::ping_interval`](kubefan_core::upstream::ClientConfig::ping_interval).
    pub ping_interval: Duration,
    /// As [`ClientConfig::ping_timeout`](kubefan_core::upstream::ClientConfig::ping_timeout).
    pub ping_timeout: Duration,
    /// Address for clients.
    pub listen: SocketAddr,
    /// True if programs on other machines can read with kubefan's rights, or read tokens on the
    /// line. The operator has accepted this.
    pub is_exposed: bool,
    /// The listener for probes and metrics.
    pub admin: AdminConfig,
    /// Number of serving threads; `None` to serve clients on the runtime that starts kubefan, as
    /// the demo does.
    pub threads: Option<NonZeroUsize>,
    /// The resources that are cached from the start.
    pub resources: Resources,
    /// The rules that decide which objects of each resource are cached, and how.
    pub rules: ResourceRules,
    /// Whether Secrets are held in memory.
    pub cache_secrets: bool,
    /// The settings of the informers and their caches.
    pub informer: informer::Config,
    /// The file for audit events; `-` for standard output, `None` for no audit log.
    pub audit_log: Option<PathBuf>,
    /// The file for a line about each request; `-` for standard output, `None` for no access log.
    pub access_log: Option<PathBuf>,
    /// The collector of traces; `None` for no traces.
    pub traces: Option<traces::Config>,
    /// Whether clients connect with TLS, and the certificate that they get.
    pub tls: Tls,
    /// How callers are authenticated and authorized.
    pub access: identity::Config,
    /// The sources of the authorities of client certificates.
    pub authorities: Option<identity::AuthoritySources>,
    /// The limits of the listener for clients and of its connections.
    pub connections: net::Config,
    /// The limits of the memory that is held for readers and callers.
    pub memory: ledger::Limits,
    /// The limits of requests.
    pub requests: server::Config,
    /// How long the listeners are open, and how long running requests and watches may take, at
    /// shutdown.
    pub shutdown: shutdown::Config,
}

/// Checks the settings against each other. `variable` looks up environment variables that the
/// settings refer to. Adds all problems to `problems`, and returns `None` if there is any problem,
/// even one from reading the values.
pub(super) fn check(
    settings: &Settings,
    sources: &Sources,
    variable: Lookup<'_>,
    problems: &mut Vec<Problem>,
) -> Option<ServeConfig> {
    let mut checker = Checker {
        settings,
        sources,
        problems,
    };
    let listen = checker.address("listen.address", &settings.listen.address);
    let tls = checker.tls();
    let access = access(settings, &tls);
    let admin = checker.admin(&tls, &access);
    let exposure = listen.map(|listen| checker.exposure(listen, &tls, access.mode));
    let authorities = checker.authorities(&access);
    let resources = checker.resources();
    let rules = checker.rules(variable);
    let traces = checker.traces();
    if !problems.is_empty() {
        return None;
    }
    let memory = memory(&settings.limits);
    Some(ServeConfig {
        kubeconfig: settings.upstream.kubeconfig.clone(),
        context: settings.upstream.context.clone(),
        ping_interval: settings.upstream.ping_interval.0,
        ping_timeout: settings.upstream.ping_timeout.0,
        listen: listen?,
        is_exposed: exposure?.danger.is_some(),
        admin: admin?,
        threads: Some(settings.listen.threads.unwrap_or_else(cores)),
        resources,
        rules,
        cache_secrets: settings.cache.secrets || tls == Tls::Plain,
        informer: informers(settings, &memory),
        audit_log: settings.audit.log_path.clone(),
        access_log: settings.log.access_log_path.clone(),
        traces,
        tls,
        access: with_budgets(access, &memory),
        authorities,
        connections: connections(settings),
        memory,
        requests: requests(settings, exposure?.web_pages),
        shutdown: shutdown_config(settings),
    })
}

fn shutdown_config(settings: &Settings) -> shutdown::Config {
    shutdown::Config {
        not_ready_delay: settings.shutdown.delay.0,
        grace: settings.shutdown.grace_period.0,
    }
}

/// Returns the number of cores that this process may use. The limit of its container counts too.
fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ServeLine;
    use crate::config::{Problems, ResolvedConfig};
    use crate::net::ProxyNetworks;
    use crate::server::{UserLimits, WebPageRules};

    fn parse(line: &str) -> Result<ServeConfig, Problems> {
        let words = ["kubefan", "serve"]
            .into_iter()
            .chain(line.split_whitespace());
        ResolvedConfig::new(&ServeLine::parse(words)).map(|resolved| resolved.serve)
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let rows = [
            (
                "--listen 0.0.0.0:8001",
                vec!["--listen: 0.0.0.0:8001 is not loopback: with --auth none"],
            ),
            (
                "--listen 0.0.0.0:8001 --auth delegated",
                vec!["--listen: 0.0.0.0:8001 is not loopback: without TLS"],
            ),
            (
                "--listen 10.0.0.1:8001 --auth none --tls-self-signed --tls-dir x",
                vec!["--listen: 10.0.0.1:8001 is not loopback: with --auth none"],
            ),
            (
                "--insecure-expose-to-network",
                vec!["--insecure-expose-to-network: has no effect"],
            ),
            (
                "--listen 10.0.0.1:1 --tls-self-signed --tls-dir x --insecure-expose-to-network",
                vec!["--insecure-expose-to-network: has no effect"],
            ),
            (
                "--client-ca-file x --auth none --tls-self-signed --tls-dir x",
                vec!["--client-ca-file: has no effect with --auth none"],
            ),
            (
                "--client-ca-file x --client-certificates=false --tls-self-signed --tls-dir x",
                vec!["--client-ca-file: has no effect without --client-certificates"],
            ),
            (
                "--anonymous-auth",
                vec!["--anonymous-auth: has no effect with --auth none"],
            ),
            (
                "--listen nonsense",
                vec!["--listen: \"nonsense\" is not an ADDRESS:PORT"],
            ),
            (
                "--listen 10.0.0.1:1 --admin-listen x --all -r pods --tls-cert-file a",
                vec![
                    "--tls-cert-file: needs",
                    "--admin-listen:",
                    "--listen:",
                    "--all: already",
                ],
            ),
            (
                "--tls-dir x",
                vec!["--tls-dir: has no effect without --tls-self-signed"],
            ),
            (
                "--tracing-endpoint http://a:4318 --tracing-headers-file x",
                vec!["--tracing-headers-file: may hold credentials, but --tracing-endpoint is"],
            ),
            (
                "--tracing-endpoint https://a:4318?key=x",
                vec!["--tracing-endpoint: is not an http:// or https:// URL without"],
            ),
            (
                "--head-timeout 0s --max-header-bytes 1Ki --max-url-bytes 65Ki",
                vec![
                    "--head-timeout: must be more than 0s",
                    "--max-header-bytes: must be from 8Ki to 16Mi",
                    "--max-url-bytes: must be from 1Ki to 64Ki",
                ],
            ),
            (
                "--write-timeout 0s --tcp-keepalive 900ms --upstream-ping-timeout 0s",
                vec![
                    "--upstream-ping-timeout: must be more than 0s",
                    "--write-timeout: must be from 1s to 24d",
                    "--tcp-keepalive: must be from 1s to 9h",
                ],
            ),
            (
                "--write-timeout 25d --tcp-keepalive 10h",
                vec![
                    "--write-timeout: must be from 1s to 24d",
                    "--tcp-keepalive: must be from 1s to 9h",
                ],
            ),
            (
                "--tls-private-key-file x",
                vec!["--tls-private-key-file: needs"],
            ),
            (
                "--tls-self-signed --tls-cert-file a --tls-private-key-file b",
                vec!["--tls-self-signed: can't"],
            ),
        ];
        for (line, expected) in rows {
            let problems = parse(line).expect_err(line);
            let reported = problems.to_string();
            let lines: Vec<_> = reported.lines().collect();
            assert_eq!(lines.len(), expected.len(), "{line}: {reported}");
            for (reported, expected) in lines.iter().zip(expected) {
                assert!(reported.starts_with(expected), "{line}: {reported}");
            }
        }
    }

    #[test]
    fn defaults_match_kubectl_proxy() {
        let config = parse("").expect("no problem");
        assert_eq!(config.listen, "127.0.0.1:8001".parse().expect("an address"));
        assert_eq!(config.resources, Resources::Named(Vec::new()));
        assert_eq!(config.tls, Tls::Plain);
        assert!(parse("--listen localhost:0").is_ok());
        assert!(parse("--listen [::1]:8001").is_ok());
    }

    #[test]
    fn times_of_connections_and_budgets_are_passed_on() {
        let flags = "--write-timeout 11s --tcp-keepalive 12s --upstream-ping-interval 13s \
                     --upstream-ping-timeout 14s --memory-limit 16Mi";
        let config = parse(flags).expect("no problem");
        let seconds = Duration::from_secs;
        assert_eq!(config.connections.write_timeout, seconds(11));
        assert_eq!(config.requests.write_timeout, seconds(11));
        assert_eq!(config.connections.tcp_keepalive, seconds(12));
        assert_eq!(config.ping_interval, seconds(13));
        assert_eq!(config.ping_timeout, seconds(14));
        let groups = config.informer.groups;
        for budget in [
            config.informer.bridge_bytes,
            groups.queue_bytes,
            groups.idle_bytes,
        ] {
            assert_eq!(budget, 2 << 20);
        }
    }

    #[test]
    fn the_limits_of_users_and_addresses_are_passed_on() {
        let flags = "--max-reviews-inflight 5 --max-failed-authentications-per-second 6 \
                     --authentication-reauthenticate 7s --max-watches-per-user 8 \
                     --max-streams-per-user 9 --max-proof-scopes-per-user 10 \
                     --proxy-protocol-from 10.0.0.0/8,::1";
        let config = parse(flags).expect("no problem");
        let access = &config.access;
        assert_eq!(access.max_reviews_in_flight.get(), 5);
        assert_eq!(access.max_failed_per_second.get(), 6);
        assert_eq!(access.reauthenticate, Duration::from_secs(7));
        let users = UserLimits {
            streams: 9,
            watches: 8,
            proof_scopes: 10,
        };
        assert_eq!(config.requests.users, users);
        let networks = ["10.0.0.0/8", "::1/128"].map(|text| text.parse().expect("a network"));
        let expected = ProxyNetworks(networks.into());
        assert_eq!(config.connections.proxies, expected);
    }

    #[test]
    fn callers_are_authenticated_where_tls_is_served() {
        use identity::Mode;
        let tls = "--tls-self-signed --tls-dir x";
        let exposed = "--insecure-expose-to-network";
        for (line, mode, has_local_name) in [
            (String::new(), Mode::None, true),
            ("--auth caller".to_owned(), Mode::Caller, true),
            (tls.to_owned(), Mode::Caller, false),
            (format!("{tls} --auth none"), Mode::None, true),
            (
                format!("{tls} --auth delegated --listen 0.0.0.0:1"),
                Mode::Delegated,
                false,
            ),
            (format!("{tls} --listen [::]:1"), Mode::Caller, false),
            (format!("--listen 0.0.0.0:1 {exposed}"), Mode::None, false),
            (
                format!("--listen 10.0.0.1:1 --auth caller {exposed}"),
                Mode::Caller,
                false,
            ),
        ] {
            let config = parse(&line).expect(&line);
            assert_eq!(config.access.mode, mode, "{line}");
            assert_eq!(config.is_exposed, line.contains(exposed), "{line}");
            assert_eq!(config.cache_secrets, !line.contains("tls"), "{line}");
            assert!(
                parse(&format!("{line} --cache-secrets"))
                    .expect(&line)
                    .cache_secrets
            );
            let expected = WebPageRules {
                has_local_name,
                are_callers_authenticated: mode != Mode::None,
            };
            assert_eq!(config.requests.web_pages, expected, "{line}");
        }
    }
}
