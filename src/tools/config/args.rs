//! The flags of `kubefan sim` and `kubefan demo`, as clap parses them.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// Flags of `kubefan sim`.
#[derive(Clone, Debug, ClapArgs)]
pub struct SimArgs {
    /// Address for clients, loopback only; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8003")]
    pub listen: String,

    /// Address for /livez, /readyz, /metrics and fault injection (see GET /); loopback only
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8004")]
    pub admin_listen: String,

    /// A YAML file with CustomResourceDefinitions to serve; may be repeated
    #[arg(long = "crd", value_name = "FILE")]
    pub definitions: Vec<PathBuf>,
}

/// Flags of `kubefan demo`.
#[derive(Clone, Debug, ClapArgs)]
pub struct DemoArgs {
    /// Number of nodes of the simulated cluster
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub nodes: usize,

    /// Number of pods of the simulated cluster
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub pods: usize,

    /// Number of simulated clients: node agents, controllers and dashboards; 0 for none
    #[arg(long, value_name = "COUNT", default_value_t = 300)]
    pub agents: usize,

    /// Changes per second; 0 for none
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub churn: u32,

    /// Seed of the random cluster and its random changes
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Address for clients, loopback only; the next three ports are for kubefan's metrics, the
    /// simulated API server and its faults; port 0 chooses free ports
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8001")]
    pub listen: String,

    /// Where to write a kubeconfig for kubefan; an existing file is overwritten, and the file is
    /// deleted when the demo ends
    #[arg(long, value_name = "FILE", default_value = "kubefan-demo.kubeconfig")]
    pub kubeconfig_out: PathBuf,

    /// Print a line every few seconds instead of redrawing a screen; the default if standard output
    /// or input is not a terminal
    #[arg(long)]
    pub plain: bool,
}
