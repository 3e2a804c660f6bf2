//! Turns the flags of `kubefan sim` into a checked [`SimConfig`], or reports all problems.

use std::net::SocketAddr;
use std::path::PathBuf;

use kubefan_proxy::config::{Problems, address};

use super::SimArgs;

/// A checked configuration of `kubefan sim`.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Address for clients; always loopback.
    pub listen: SocketAddr,
    /// Address for probes, metrics and fault injection; always loopback.
    pub admin_listen: SocketAddr,
    /// YAML files with CustomResourceDefinitions to serve.
    pub definitions: Vec<PathBuf>,
}

const NOT_AUTHENTICATED: &str = "any client that connects can change everything, so it listens on \
     loopback only; use 127.0.0.1 or [::1]";

// === impl SimConfig ===

impl TryFrom<&SimArgs> for SimConfig {
    type Error = Problems;

    fn try_from(args: &SimArgs) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let mut loopback = |flag, text| {
            let address = address::parse_loopback(text, NOT_AUTHENTICATED);
            let add_problem = |problem| problems.push(address::flag_problem(flag, problem));
            address.map_err(add_problem).ok()
        };
        let listen = loopback("--listen", &args.listen);
        let admin_listen = loopback("--admin-listen", &args.admin_listen);
        match (listen, admin_listen) {
            (Some(listen), Some(admin_listen)) => Ok(Self {
                listen,
                admin_listen,
                definitions: args.definitions.clone(),
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
        let args = SimArgs {
            listen: "0.0.0.0:1".to_owned(),
            admin_listen: "x".to_owned(),
            definitions: Vec::new(),
        };
        let message = SimConfig::try_from(&args)
            .expect_err("two problems")
            .to_string();
        assert!(
            message.contains("--listen: 0.0.0.0:1 is not loopback"),
            "{message}"
        );
        assert!(message.contains("--admin-listen: \"x\""), "{message}");
    }
}
