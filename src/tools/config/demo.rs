//! Turns the flags of `kubefan demo` into a checked [`DemoConfig`], or reports all problems.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::Problems;
use crate::config::address;

use super::DemoArgs;

/// A checked configuration of `kubefan demo`.
#[derive(Clone, Debug)]
pub struct DemoConfig {
    /// Number of nodes; at least one.
    pub nodes: usize,
    /// Number of pods at the start; churn changes it.
    pub pods: usize,
    /// Changes per second; 0 for none.
    pub churn: u32,
    /// Seed of the random cluster and its random changes.
    pub seed: u64,
    /// Address for the clients of kubefan; always loopback.
    pub listen: SocketAddr,
    /// Where the kubeconfig for kubefan is written.
    pub kubeconfig_out: PathBuf,
}

/// The largest values of `--nodes`, `--pods` and `--churn` (changes per second).
const MAX_NODES: usize = 5_000;
const MAX_PODS: usize = 150_000;
const MAX_CHURN: u32 = 10_000;

const NOT_AUTHENTICATED: &str = "callers are not authenticated, so it listens on loopback only; \
     use 127.0.0.1 or [::1]";

// === impl DemoConfig ===

impl TryFrom<&DemoArgs> for DemoConfig {
    type Error = Problems;

    fn try_from(args: &DemoArgs) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let limits = [
            ("--nodes", args.nodes, 1, MAX_NODES),
            ("--pods", args.pods, 0, MAX_PODS),
            ("--churn", args.churn as usize, 0, MAX_CHURN as usize),
        ];
        for (flag, value, least, most) in limits {
            if value < least || value > most {
                let problem = format!("{value} is not from {least} to {most}");
                problems.push(address::flag_problem(flag, problem));
            }
        }
        let listen = address::parse_loopback(&args.listen, NOT_AUTHENTICATED)
            .map_err(|problem| problems.push(address::flag_problem("--listen", problem)));
        match listen {
            Ok(listen) if problems.is_empty() => Ok(Self {
                nodes: args.nodes,
                pods: args.pods,
                churn: args.churn,
                seed: args.seed,
                listen,
                kubeconfig_out: args.kubeconfig_out.clone(),
            }),
            _ => Err(Problems::new(problems)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_reported_at_once() {
        let args = DemoArgs {
            nodes: 0,
            pods: 1_000_000,
            churn: 1,
            seed: 1,
            listen: "10.0.0.1:1".to_owned(),
            kubeconfig_out: PathBuf::from("x"),
        };
        let message = DemoConfig::try_from(&args).expect_err("three problems");
        let message = message.to_string();
        for flag in [
            "--nodes: 0 is not",
            "--pods: 1000000 is not",
            "--listen: 10.0.0.1:1",
        ] {
            assert!(message.contains(flag), "{message}");
        }
    }
}
