//! Flags of `kubefan sim` and `kubefan demo`, as typed.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// Flags of `kubefan sim`.
#[derive(Clone, Debug, ClapArgs)]
pub struct SimArgs {
    /// Address that clients connect to; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8003")]
    pub listen: String,

    /// Address of /livez, /readyz, /metrics and of the faults that GET / explains
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8004")]
    pub admin_listen: String,

    /// A YAML file with CustomResourceDefinitions to serve; may be repeated
    #[arg(long = "crd", value_name = "FILE")]
    pub definitions: Vec<PathBuf>,
}

/// Flags of `kubefan demo`.
#[derive(Clone, Debug, ClapArgs)]
pub struct DemoArgs {
    /// Nodes of the simulated cluster
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub nodes: usize,

    /// Pods of the simulated cluster
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub pods: usize,

    /// Changes a second; 0 for none
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub churn: u32,

    /// What all chance of the cluster is drawn from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Address that clients connect to; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8001")]
    pub listen: String,

    /// Where to write the kubeconfig that points at it; a file that is there is overwritten
    #[arg(long, value_name = "FILE", default_value = "kubefan-demo.kubeconfig")]
    pub kubeconfig_out: PathBuf,
}
