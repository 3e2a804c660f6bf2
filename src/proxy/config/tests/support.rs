use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tempfile::TempDir;

use crate::config::{GlobalArgs, ResolvedConfig, ServeArgs, check_file, environment};

/// Returns the path of a file of this repository.
pub(super) fn in_repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

/// The command line of the program, with the subcommand `serve` alone.
#[derive(Debug, Parser)]
#[command(name = "kubefan", version)]
pub(in crate::config) struct ServeLine {
    #[command(flatten)]
    _global: GlobalArgs,
    #[command(subcommand)]
    command: OnlyServe,
}

#[derive(Debug, Subcommand)]
enum OnlyServe {
    Serve(ServeArgs),
}

impl ServeLine {
    /// Parses a command line.
    pub(in crate::config) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> ServeArgs {
        let command = environment::ignoring_empty_variables(Self::command());
        let matches = command
            .try_get_matches_from(words)
            .expect("clap accepts it");
        let line = Self::from_arg_matches(&matches).expect("its values");
        let OnlyServe::Serve(serve) = line.command;
        serve
    }
}

/// Returns a temporary directory with a file `c.yaml` that contains `text`, and the path of the
/// file.
pub(super) fn config_file(text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("c.yaml");
    fs::write(&path, text).expect("a written file");
    (directory, path)
}

/// Returns the lines that `check_file` reports for a file with this text, without the headline and
/// the path.
pub(super) fn problems_of(text: &str) -> Vec<String> {
    let (directory, path) = config_file(text);
    let Err(problems) = check_file(&path) else {
        return Vec::new();
    };
    let reported = problems.to_string();
    let mut lines = reported.lines();
    let head = lines.next().expect("a line");
    let prefix = format!("{}/c.yaml:", directory.path().display());
    let lines: Vec<_> = lines
        .map(|line| {
            line.replace(&prefix, "")
                .replace(": ", " ")
                .trim()
                .to_owned()
        })
        .collect();
    let count = format!("has {} problem", lines.len());
    assert!(head.contains(&count), "{reported}");
    lines
}

/// Returns the configuration of `kubefan serve` with a file that contains `text`, and with `flags`.
pub(in crate::config) fn resolved(text: &str, flags: &str) -> Result<ResolvedConfig, String> {
    let (_directory, path) = config_file(text);
    let words = format!("kubefan serve --config {} {flags}", path.display());
    let args = ServeLine::parse(words.split_whitespace());
    ResolvedConfig::new(&args).map_err(|problems| problems.to_string())
}
