//! The command line: the subcommands, and the flags of subcommands without a configuration file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{
    ArgMatches, Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
};
use clap_complete::Shell;
use kubefan_proxy::admin_client::AdminArgs;
use kubefan_proxy::config::{AuthMode, GlobalArgs, ServeArgs, environment};

/// kubefan: a caching watch proxy for the Kubernetes API
#[derive(Debug, Parser)]
#[command(name = "kubefan", version, about, propagate_version = true)]
pub(crate) struct Args {
    /// Flags that every subcommand accepts.
    #[command(flatten)]
    pub(crate) global: GlobalArgs,

    /// The subcommand to run
    #[command(subcommand)]
    pub(crate) command: Command,

    /// The subcommand's name, such as `config show`. Not a flag itself.
    #[arg(skip)]
    pub(crate) subcommand: String,
}

/// The subcommands of `kubefan`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the API of the cluster in the kubeconfig, from a cache
    Serve(ServeArgs),
    /// The subcommands of the tools, if the feature `tools` is on.
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tools(kubefan_tools::Command),
    /// Show the caches, clients and requests of a running kubefan, and advice about them
    #[cfg(feature = "top")]
    Top(kubefan_top::TopArgs),
    /// Print a kubeconfig for kubefan
    Kubeconfig(KubeconfigArgs),
    /// Say whether a cache would answer a request, and what would change that
    ///
    /// Asks a running kubefan, which decides as for the request itself, and sends nothing for it. For
    /// the requests of a kubectl command: kubectl -v=8 get pods 2>&1 | kubefan why -
    Why(WhyArgs),
    /// Check or show the configuration of kubefan serve
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the version, and how this binary was built
    Version {
        /// Format of the output
        #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
        output: OutputFormat,
    },
    /// Print a script that completes the command line in a shell
    Completion {
        /// The shell that the script is for
        #[arg(value_name = "SHELL", value_enum)]
        shell: Shell,
    },
}

/// Formats of printed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Lines for people
    Text,
    /// A JSON object
    Json,
    /// A YAML document
    Yaml,
}

/// The subcommands of `kubefan config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report every mistake in a configuration file with its line and column
    Check {
        /// Configuration file (YAML)
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print the resulting configuration, and where each value is from
    Show(ServeArgs),
    /// Print the JSON Schema of the configuration file
    Schema,
}

/// Flags of `kubefan kubeconfig`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct KubeconfigArgs {
    /// Address that kubefan listens on
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8001",
        env = "KUBEFAN_LISTEN"
    )]
    pub(crate) listen: String,

    /// URL of kubefan, if clients reach it by another name than --listen
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,

    /// kubefan serves TLS with --tls-self-signed
    #[arg(long, conflicts_with = "certificate_authority")]
    pub(crate) tls_self_signed: bool,

    /// The --tls-dir of kubefan; default: kubefan/tls in the user's state directory
    #[arg(long, value_name = "DIR", requires = "tls_self_signed")]
    pub(crate) tls_dir: Option<PathBuf>,

    /// kubefan serves TLS with a certificate of this authority (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate_authority: Option<PathBuf>,

    /// The --auth of kubefan: with caller and delegated, the credentials of a kubeconfig are copied;
    /// default: caller if kubefan serves TLS, otherwise none
    #[arg(long, value_name = "MODE", value_enum, env = "KUBEFAN_AUTH")]
    pub(crate) auth: Option<AuthMode>,

    /// Copy credentials from this file; default: $KUBECONFIG, ~/.kube/config, or the pod's service
    /// account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Copy the credentials of this context; default: the current context
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Namespace of the context; default: that of the copied context
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Add what this client library needs
    #[arg(long = "for", value_name = "CLIENT")]
    pub(crate) client: Option<KubeconfigClient>,

    /// Write to this file, which only its owner may read; default: standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Flags of `kubefan why`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct WhyArgs {
    /// Path of the request with its query, such as /api/v1/pods?limit=500; "-" reads the output of
    /// kubectl -v=8 from standard input
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<String>,

    /// Method of the request
    #[arg(
        long = "request",
        short = 'X',
        value_name = "VERB",
        default_value = "GET"
    )]
    pub(crate) method: String,

    /// Header of the request, such as "Accept: application/json"; may be repeated. Secrets in headers
    /// are not sent
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    pub(crate) headers: Vec<String>,

    /// The user that sends the request, whom you may impersonate; default: you
    #[arg(long = "as", value_name = "USER")]
    pub(crate) user: Option<String>,

    /// Group of the user; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    pub(crate) groups: Vec<String>,

    /// UID of the user
    #[arg(long = "as-uid", value_name = "UID", requires = "user")]
    pub(crate) uid: Option<String>,

    /// Attribute of the user; may be repeated
    #[arg(long = "as-user-extra", value_name = "KEY=VALUE", requires = "user")]
    pub(crate) extra: Vec<String>,

    /// Which kubefan, and with which credentials.
    #[command(flatten)]
    pub(crate) admin: AdminArgs,

    /// Print a line of JSON for each request
    #[arg(long)]
    pub(crate) json: bool,
}

/// A client library that needs an addition to the kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KubeconfigClient {
    /// @kubernetes/client-node: over plain HTTP it needs insecure-skip-tls-verify
    ClientNode,
}

// === impl Args ===

impl Args {
    /// Parses the command line of this process.
    ///
    /// # Errors
    ///
    /// If clap rejects it, or answers it itself, as for `--help`.
    pub(crate) fn try_parse() -> Result<Self, clap::Error> {
        Self::try_parse_from(std::env::args_os())
    }

    /// Parses a command line that begins with the program's name. Unlike clap's method of this
    /// name, it ignores empty variables, and its messages name the variable of a wrong value.
    ///
    /// # Errors
    ///
    /// If clap rejects it, or answers it itself, as for `--help`.
    pub(crate) fn try_parse_from<I, T>(words: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString> + Clone,
    {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let command = environment::ignoring_empty_variables(Self::command());
        let mut parser = command.clone();
        let matches = parser
            .try_get_matches_from_mut(&words)
            .map_err(|error| environment::naming_variables(error, &command, &words))?;
        let mut args = Self::from_arg_matches(&matches)?;
        args.subcommand = subcommand_of(&matches);
        Ok(args)
    }

    /// Returns warnings about environment variables that look like those of kubefan, but are not.
    pub(crate) fn environment_warnings() -> Vec<String> {
        environment::warnings(&Self::command())
    }
}

fn subcommand_of(mut matches: &ArgMatches) -> String {
    let mut names = Vec::new();
    while let Some((name, below)) = matches.subcommand() {
        names.push(name);
        matches = below;
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use kubefan_core::telemetry::LogFormat;
    use kubefan_proxy::config::ResolvedConfig;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_flags_of_serve_are_in_sections() {
        let command = Args::command();
        let serve = command.find_subcommand("serve").expect("serve");
        let without: Vec<_> = serve
            .get_arguments()
            .filter(|arg| arg.get_help_heading().is_none())
            .map(|arg| arg.get_id().as_str())
            .collect();
        assert_eq!(without, ["config", "help", "help-all"]);
    }

    #[test]
    fn global_flags_override_the_file_in_any_position() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("c.yaml");
        std::fs::write(&path, "log: {format: json, verbosity: 2}").expect("a written file");
        let path = path.display();
        for line in [
            format!("kubefan -v --log-format text serve --config {path}"),
            format!("kubefan serve --config {path} -v --log-format text"),
            format!("kubefan --log-format text config -v show --config {path}"),
        ] {
            let args = Args::try_parse_from(line.split_whitespace()).expect("clap accepts it");
            let (Command::Serve(serve) | Command::Config(ConfigCommand::Show(serve))) =
                &args.command
            else {
                unreachable!("serve and config show have the flags of serve")
            };
            let found = ResolvedConfig::new(serve).expect("no problems");
            assert_eq!(found.log.format, LogFormat::Text, "{line}");
            assert_eq!(found.log.verbosity, 1, "{line}");
        }
    }
}
