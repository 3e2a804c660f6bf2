//! Turns the flags of `kubefan demo` into a checked [`DemoConfig`], or reports all problems.

use std::net::SocketAddr;
use std::path::PathBuf;

use kubefan_proxy::config::{Problems, address};

use super::DemoArgs;

/// A checked configuration of `kubefan demo`.
#[derive(Clone, Debug)]
pub struct DemoConfig {
    /// Number of nodes; at least one.
    pub nodes: usize,
    /// Number of pods at the start; churn changes it.
    pub pods: usize,
    /// Number of simulated clients.
    pub agents: usize,
    /// Changes per second; 0 for none.
    pub churn: u32,
    /// Seed of the random cluster and its random changes.
    pub seed: u64,
    /// Address for the clients of kubefan; always loopback.
    pub listen: SocketAddr,
    /// Where the kubeconfig for kubefan is written.
    pub kubeconfig_out: PathBuf,
}

/// The largest values of `--nodes`, `--pods`, `--agents` and `--churn` (changes per second).
const MAX_NODES: usize = 5_000;
const MAX_PODS: usize = 150_000;
const MAX_AGENTS: usize = 10_000;
const MAX_CHURN: u32 = 10_000;
/// The demo listens on this number of ports, one after another.
const PORTS: u16 = 4;

const NOT_AUTHENTICATED: &str = "callers are not authenticated, so it listens on loopback only; \
     use 127.0.0.1 or [::1]";

// === impl DemoConfig ===

impl DemoConfig {
    /// Returns the address for clients with a port that is `by` higher: by 1 for the admin listener,
    /// by 2 for the simulated API server, by 3 for its faults. Port 0, for any free port, stays 0.
    pub fn later_port(&self, by: u16) -> SocketAddr {
        let port = match self.listen.port() {
            0 => 0,
            port => port.saturating_add(by),
        };
        SocketAddr::new(self.listen.ip(), port)
    }
}

impl TryFrom<&DemoArgs> for DemoConfig {
    type Error = Problems;

    fn try_from(args: &DemoArgs) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let limits = [
            ("--nodes", args.nodes, 1, MAX_NODES),
            ("--pods", args.pods, 0, MAX_PODS),
            ("--agents", args.agents, 0, MAX_AGENTS),
            ("--churn", args.churn as usize, 0, MAX_CHURN as usize),
        ];
        for (flag, value, least, most) in limits {
            if value < least || value > most {
                let problem = format!("{value} is not from {least} to {most}");
                problems.push(address::flag_problem(flag, problem));
            }
        }
        let listen = address::parse_loopback(&args.listen, NOT_AUTHENTICATED)
            .and_then(with_later_ports)
            .map_err(|problem| problems.push(address::flag_problem("--listen", problem)));
        match listen {
            Ok(listen) if problems.is_empty() => Ok(Self {
                nodes: args.nodes,
                pods: args.pods,
                agents: args.agents,
                churn: args.churn,
                seed: args.seed,
                listen,
                kubeconfig_out: args.kubeconfig_out.clone(),
            }),
            _ => Err(Problems::new(problems)),
        }
    }
}

/// Checks that there are ports after that of `listen`.
fn with_later_ports(listen: SocketAddr) -> Result<SocketAddr, String> {
    let last = u16::MAX - (PORTS - 1);
    if listen.port() <= last {
        Ok(listen)
    } else {
        Err(format!(
            "{listen}: the demo uses {PORTS} ports from this one on; use one up to {last}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(listen: &str) -> DemoArgs {
        DemoArgs {
            nodes: 1,
            pods: 1,
            agents: 1,
            churn: 1,
            seed: 1,
            listen: listen.to_owned(),
            kubeconfig_out: PathBuf::from("x"),
            plain: false,
        }
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let args = DemoArgs {
            nodes: 0,
            pods: 1_000_000,
            agents: 10_001,
            ..args("10.0.0.1:1")
        };
        let message = DemoConfig::try_from(&args).expect_err("four problems");
        let message = message.to_string();
        for flag in [
            "--nodes: 0 is not",
            "--pods: 1000000 is not",
            "--agents: 10001 is not",
            "--listen: 10.0.0.1:1",
        ] {
            assert!(message.contains(flag), "{message}");
        }
    }

    #[test]
    fn the_ports_follow_that_for_clients() {
        for (listen, expected) in [
            ("127.0.0.1:8001", [8002, 8003, 8004]),
            ("127.0.0.1:0", [0, 0, 0]),
            ("127.0.0.1:65532", [65533, 65534, 65535]),
        ] {
            let config = DemoConfig::try_from(&args(listen)).expect(listen);
            let ports = [1, 2, 3].map(|by| config.later_port(by).port());
            assert_eq!(ports, expected, "{listen}");
        }
        let message = DemoConfig::try_from(&args("127.0.0.1:65533")).expect_err("too few ports");
        assert!(
            message.to_string().contains("use one up to 65532"),
            "{message}"
        );
    }
}
