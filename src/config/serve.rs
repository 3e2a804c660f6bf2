//! `kubefan serve`: typed arguments become a checked configuration, or all their faults at once.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::informer;

use super::ServeArgs;

/// A checked configuration of `kubefan serve`.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Kubeconfig file; `None`: as kubectl finds it, then the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context; `None`: the current one.
    pub context: Option<String>,
    /// Where clients connect; loopback.
    pub listen: SocketAddr,
    /// Where /livez, /readyz and /metrics are.
    pub admin_listen: SocketAddr,
    /// What is cached from the start.
    pub resources: Resources,
    /// How informers are run.
    pub informer: informer::Config,
    /// How connections are secured.
    pub tls: Tls,
    /// How long requests and watches have at shutdown.
    pub shutdown_grace_period: Duration,
}

/// What is cached from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resources {
    /// These names, as kubectl knows them; may be empty.
    Named(Vec<String>),
    /// Everything that can be cached.
    All,
}

/// How connections are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Not at all.
    Plain,
    /// With this certificate chain and key.
    Files {
        /// Certificate chain, PEM.
        certificate: PathBuf,
        /// Private key, PEM.
        key: PathBuf,
    },
    /// With a CA of kubefan's own, kept in this directory.
    SelfSigned {
        /// The directory.
        directory: PathBuf,
    },
}

/// One thing that is wrong with the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    flag: &'static str,
    problem: String,
}

/// Everything that is wrong with the command line; at least one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

// === impl ServeConfig ===

impl TryFrom<&ServeArgs> for ServeConfig {
    type Error = Faults;

    fn try_from(args: &ServeArgs) -> Result<Self, Faults> {
        let mut faults = Vec::new();
        let listen = loopback(&mut faults, "--listen", &args.listen, NOT_AUTHENTICATED);
        let admin_listen = address(&mut faults, "--admin-listen", &args.admin_listen);
        let tls = tls(&mut faults, args);
        let resources = resources(&mut faults, args);
        match (listen, admin_listen) {
            (Some(listen), Some(admin_listen)) if faults.is_empty() => Ok(Self {
                kubeconfig: args.kubeconfig.clone(),
                context: args.context.clone(),
                listen,
                admin_listen,
                resources,
                informer: informer::Config {
                    idle: args.idle_timeout,
                    indexed_labels: args.index_labels.clone(),
                    ..informer::Config::default()
                },
                tls,
                shutdown_grace_period: args.shutdown_grace_period,
            }),
            _ => Err(Faults(faults)),
        }
    }
}

const NOT_AUTHENTICATED: &str = "kubefan answers with the rights of its kubeconfig and does not \
     authenticate callers yet, so it listens on loopback only; use 127.0.0.1 or [::1]";

fn address(faults: &mut Vec<Fault>, flag: &'static str, text: &str) -> Option<SocketAddr> {
    let text = text.replacen("localhost:", "127.0.0.1:", 1);
    match text.parse() {
        Ok(address) => Some(address),
        Err(_) => {
            let problem = format!("{text:?} is no ADDRESS:PORT; 127.0.0.1:8001 would be one");
            faults.push(Fault { flag, problem });
            None
        }
    }
}

fn loopback(
    faults: &mut Vec<Fault>,
    flag: &'static str,
    text: &str,
    reason: &str,
) -> Option<SocketAddr> {
    let address = address(faults, flag, text)?;
    if !address.ip().is_loopback() {
        let problem = format!("{address} is not loopback: {reason}");
        faults.push(Fault { flag, problem });
    }
    Some(address)
}

fn tls(faults: &mut Vec<Fault>, args: &ServeArgs) -> Tls {
    let mut fault = |flag, problem: &str| {
        faults.push(Fault {
            flag,
            problem: problem.to_owned(),
        });
        Tls::Plain
    };
    match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(_), Some(_)) if args.tls_self_signed => {
            fault("--tls-self-signed", "can't be used with --tls-cert-file")
        }
        (Some(certificate), Some(key)) => Tls::Files {
            certificate: certificate.clone(),
            key: key.clone(),
        },
        (Some(_), None) => fault("--tls-cert-file", "needs --tls-private-key-file too"),
        (None, Some(_)) => fault("--tls-private-key-file", "needs --tls-cert-file too"),
        (None, None) if args.tls_self_signed => {
            match args.tls_dir.clone().or_else(default_tls_dir) {
                Some(directory) => Tls::SelfSigned { directory },
                None => fault("--tls-self-signed", "needs --tls-dir, as HOME is not set"),
            }
        }
        (None, None) if args.tls_dir.is_some() => fault(
            "--tls-dir",
            "only says where --tls-self-signed keeps its files; add that flag",
        ),
        (None, None) => Tls::Plain,
    }
}

fn resources(faults: &mut Vec<Fault>, args: &ServeArgs) -> Resources {
    if args.all && !args.resources.is_empty() {
        faults.push(Fault {
            flag: "--all",
            problem: "already names every resource; leave out --resource".to_owned(),
        });
    }
    if args.resources.iter().any(|name| name.trim().is_empty()) {
        faults.push(Fault {
            flag: "--resource",
            problem: "is empty; pods or deployments.apps would be right".to_owned(),
        });
    }
    match args.all {
        true => Resources::All,
        false => Resources::Named(args.resources.clone()),
    }
}

/// `kubefan/tls` in the user's state directory; `None` when neither `XDG_STATE_HOME` nor `HOME` is
/// set. Source: XDG Base Directory Specification.
pub fn default_tls_dir() -> Option<PathBuf> {
    let directory = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = match directory("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None => PathBuf::from(directory("HOME")?).join(".local/state"),
    };
    Some(state.join("kubefan/tls"))
}

// === impl Faults ===

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}: {}", fault.flag, fault.problem)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::Args;
    use crate::config::Command;

    fn parse(line: &str) -> Result<ServeConfig, Faults> {
        let words = ["kubefan", "serve"]
            .into_iter()
            .chain(line.split_whitespace());
        match Args::try_parse_from(words).expect("clap takes it").command {
            Command::Serve(args) => ServeConfig::try_from(args.as_ref()),
            Command::Kubeconfig(_) => unreachable!("the line says serve"),
        }
    }

    #[test]
    fn faults_are_told_all_at_once() {
        let rows = [
            (
                "--listen 0.0.0.0:8001",
                vec!["--listen: 0.0.0.0:8001 is not loopback"],
            ),
            (
                "--listen nonsense",
                vec!["--listen: \"nonsense\" is no ADDRESS:PORT"],
            ),
            (
                "--listen 10.0.0.1:1 --admin-listen x --all -r pods --tls-cert-file a",
                vec![
                    "--listen:",
                    "--admin-listen:",
                    "--tls-cert-file: needs",
                    "--all: already",
                ],
            ),
            ("--tls-dir x", vec!["--tls-dir: only says"]),
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
            let faults = parse(line).expect_err(line);
            let told = faults.to_string();
            let lines: Vec<_> = told.lines().collect();
            assert_eq!(lines.len(), expected.len(), "{line}: {told}");
            for (told, expected) in lines.iter().zip(expected) {
                assert!(told.starts_with(expected), "{line}: {told}");
            }
        }
    }

    #[test]
    fn defaults_are_those_of_kubectl_proxy() {
        let config = parse("").expect("no fault");
        assert_eq!(config.listen, "127.0.0.1:8001".parse().expect("an address"));
        assert_eq!(config.resources, Resources::Named(Vec::new()));
        assert_eq!(config.tls, Tls::Plain);
        assert!(parse("--listen localhost:0").is_ok());
        assert!(parse("--listen [::1]:8001").is_ok());
    }
}
