//! `kubefan version` and `kubefan completion`, with the built binary.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::repository::root;
use crate::support::programs::kubefan::{run, run_with_environment};

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// Returns the output of a command that succeeds.
fn printed(arguments: &[&str]) -> String {
    let ended = run(arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, "", "{arguments:?}");
    ended.stdout
}

#[test]
fn the_version_says_how_the_binary_was_built() {
    let text = printed(&["version"]);
    let first = format!("kubefan {}\n", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with(&first), "{text}");
    assert_eq!(printed(&["--version"]), first);
    let json: Value = serde_json::from_str(&printed(&["version", "-o", "json"])).expect("JSON");
    let yaml = printed(&["version", "--output", "yaml"]);
    let yaml: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    assert_eq!(json, yaml);
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        json["features"],
        serde_json::json!(["proxy", "tools", "top"])
    );
    for (key, word) in [("rustc", "rustc 1."), ("target", std::env::consts::ARCH)] {
        let value = json[key].as_str().expect("text");
        assert!(
            value.contains(word) && text.contains(value),
            "{key}: {value}, {text}"
        );
    }
    assert_eq!(run(&["version", "-o", "xml"]).code, Some(64));
    // A debug build does not record its commit.
    let program = std::env::var("KUBEFAN_TEST_BINARY").unwrap_or_default();
    if program.contains("/release/") {
        let mut head = Command::new("git");
        head.args(["rev-parse", "HEAD"]).current_dir(root());
        let head = head.output().expect("git");
        assert!(head.status.success(), "{head:?}");
        let head = String::from_utf8(head.stdout).expect("text");
        assert!(text.contains(&format!("commit: {}", head.trim())), "{text}");
    }
}

#[test]
fn a_wrong_value_of_a_variable_is_reported_under_its_name() {
    for (variable, value) in [
        ("KUBEFAN_THREADS", "0"),
        ("KUBEFAN_AUTH", "nobody"),
        ("KUBEFAN_FRESHNESS", "pods=soon"),
        ("KUBEFAN_SHARD_SELECTOR", "always"),
        ("KUBEFAN_LOG_FORMAT", "xml"),
        ("KUBEFAN_LISTEN", "9001"),
    ] {
        let ended = run_with_environment(&[(variable, value)], &["config", "show"]);
        assert_eq!(ended.code, Some(64), "{variable}: {ended:?}");
        let error = ended.stderr;
        assert!(error.contains(variable) && error.contains(value), "{error}");
        let flag = variable.trim_start_matches("KUBEFAN").replace('_', "-");
        let flag = format!("-{}", flag.to_lowercase());
        assert!(!error.contains(&flag), "{flag}: {error}");
        // Without a value it counts as unset.
        let ended = run_with_environment(&[(variable, "")], &["config", "show"]);
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (Some(0), ""),
            "{variable}"
        );
        assert!(!ended.stdout.contains(variable), "{variable}");
    }
    let both = &["config", "show", "--threads", "none"];
    let ended = run_with_environment(&[("KUBEFAN_THREADS", "2")], both);
    assert!(ended.stderr.contains("--threads"), "{ended:?}");
}

#[test]
fn flags_override_variables_and_variables_the_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("kubefan.yaml");
    fs::write(&file, "listen: { address: '127.0.0.1:1' }\n").expect("a written file");
    let file = file.to_str().expect("UTF-8");
    for (variable, flag, expected) in [
        ("", None, "127.0.0.1:1"),
        ("127.0.0.1:2", None, "127.0.0.1:2"),
        ("", Some("127.0.0.1:3"), "127.0.0.1:3"),
        ("127.0.0.1:2", Some("127.0.0.1:3"), "127.0.0.1:3"),
    ] {
        let mut arguments = vec!["config", "show", "--config", file];
        arguments.extend(flag.iter().flat_map(|flag| ["--listen", *flag]));
        let shown = run_with_environment(&[("KUBEFAN_LISTEN", variable)], &arguments);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let addresses: Vec<_> = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
            .into_iter()
            .filter(|address| shown.stdout.contains(address))
            .collect();
        assert_eq!(addresses, [expected], "{variable} {flag:?}");
    }
}

#[test]
fn a_variable_with_a_mistake_in_its_name_is_warned_of() {
    let variables = [("KUBEFAN_LISTN", "x"), ("KUBEFAN_SERVICE_HOST", "10.0.0.1")];
    let ended = run_with_environment(&variables, &["config", "show"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let expected = "warning: kubefan does not know the environment variable KUBEFAN_LISTN; did you \
                    mean KUBEFAN_LISTEN?\n";
    assert_eq!(ended.stderr, expected);
}

#[test]
fn messages_use_no_names_of_types_and_lead_to_the_right_help() {
    for (arguments, expected) in [
        (&["serve", "--threads", "0"][..], "expected a number from 1"),
        (
            &["serve", "--max-requests-inflight", "many"],
            "expected a number from 0",
        ),
        (
            &["serve", "--memory-limit", "lots"],
            "such as 1048576 or 64Mi: \"lots\" is none",
        ),
        (
            &["serve", "--listen", "0.0.0.0:1"],
            "\nsee kubefan serve --help\n",
        ),
        (
            &["config", "show", "--listen", "0.0.0.0:1"],
            "\nsee kubefan config show --help\n",
        ),
        (
            &["sim", "--listen", "0.0.0.0:1"],
            "\nsee kubefan sim --help\n",
        ),
        (
            &["serve", "--idle-timeout", "0s"],
            "--idle-timeout: must be more than 0s",
        ),
        (
            &["serve", "--index-label", "a b"],
            "--index-label: \"a b\" is not the key of a label",
        ),
        (&["serve", "-vvv"], "--verbose: must be from 0 to 2"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(64), "{arguments:?}: {ended:?}");
        let error = ended.stderr;
        assert!(error.contains(expected), "{arguments:?}: {error}");
        for word in ["usize", "u32", "non-zero", "ByteSize", "float"] {
            assert!(!error.contains(word), "{arguments:?}: {error}");
        }
    }
}

/// Returns the flags that a help text shows.
fn flags_in(help: &str) -> Vec<&str> {
    // Other lines that begin with a flag are indented further.
    let is_flag = |line: &&str| line.starts_with("  -") || line.starts_with("      --");
    let lines = help.lines().filter(is_flag);
    let names = lines.filter_map(|line| line.split([' ', '=', '[']).find(|w| w.starts_with("--")));
    names.collect()
}

#[test]
fn the_help_of_serve_has_sections_and_the_flags_that_people_type() {
    let short = printed(&["serve", "--help"]);
    let all = printed(&["serve", "--help-all"]);
    for help in [&short, &all] {
        let places = ["API server:", "Clients:", "Caches:", "Limits:", "Shutdown:"];
        let places = places.map(|heading| help.find(&format!("\n{heading}\n")).expect(heading));
        assert!(places.is_sorted(), "{places:?}");
    }
    let (typed, all) = (flags_in(&short), flags_in(&all));
    assert!((20..=30).contains(&typed.len()), "{typed:?}");
    assert!(typed.iter().all(|flag| all.contains(flag)), "{typed:?}");
    // Every key that `config show` prints has a flag. Sections have no value.
    let shown = printed(&["config", "show"]);
    let settings = shown.lines().filter(|line| line.contains(" # ")).count();
    let others = ["--config", "--help", "--help-all", "--version"];
    assert_eq!(all.len(), settings + others.len(), "{all:?}");
    assert_eq!(printed(&["serve", "-h"]), short);
}

#[test]
fn an_unknown_flag_is_refused_with_a_similar_one() {
    for (flag, similar) in [
        ("--lisen", "--listen"),
        ("--max-review-inflight", "--max-reviews-inflight"),
    ] {
        let ended = run(&["serve", flag, "1"]);
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.stderr.contains(similar), "{}", ended.stderr);
    }
}

#[test]
fn a_switch_takes_true_and_false() {
    for (given, shown) in [
        ("--all", "all: true # flag --all"),
        ("--all=true", "all: true # flag --all"),
        ("--all=false", "all: false # flag --all"),
        ("--authorization-names-covered", "namesCovered: true # flag"),
        (
            "--authorization-names-covered=false",
            "namesCovered: false # flag",
        ),
    ] {
        let config = printed(&["config", "show", given]);
        assert!(config.contains(shown), "{given}: {config}");
    }
    let ended = run(&["config", "show", "--all=yes"]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("--all"), "{}", ended.stderr);
}

/// Unlike what clap finds, all mistakes in values are reported at once.
#[test]
fn all_wrong_values_of_flags_and_variables_are_reported_at_once() {
    let flags = [
        "serve",
        "--threads",
        "0",
        "--idle-timeout",
        "10",
        "--listen",
        "x",
    ];
    let ended = run_with_environment(&[("KUBEFAN_FRESHNESS", "soon")], &flags);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    for name in [
        "--threads: ",
        "--idle-timeout: ",
        "--listen: ",
        "KUBEFAN_FRESHNESS: ",
    ] {
        assert!(ended.stderr.contains(name), "{name}: {}", ended.stderr);
    }
}

#[test]
fn a_file_without_definitions_does_not_start_the_simulator() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kubeconfig");
    fs::write(&path, "apiVersion: v1\nkind: Config\n").expect("a written file");
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let arguments = [&["sim", "--crd", path.to_str().expect("UTF-8")], &ports[..]].concat();
    let ended = run(&arguments);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let expected = "it has no CustomResourceDefinition";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

#[test]
fn each_shell_has_a_script_with_every_subcommand() {
    for shell in SHELLS {
        let script = printed(&["completion", shell]);
        for word in ["serve", "kubeconfig", "completion", "--admin-listen"] {
            let bare = word.trim_start_matches('-');
            assert!(script.contains(bare), "{shell}: no {word}");
        }
    }
    assert_eq!(run(&["completion", "sh"]).code, Some(64));
}

/// Runs a script in bash, if it is installed.
fn bash(script: &str) -> Option<String> {
    let output = Command::new("bash").args(["--norc", "-c", script]).output();
    let output = output.ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn bash_completes_subcommands_and_flags() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("completion");
    fs::write(&file, printed(&["completion", "bash"])).expect("a file");
    let file = file.display();
    for (words, expected) in [
        ("kubefan ser", "serve"),
        ("kubefan serve --admin-lis", "--admin-listen"),
        // `--help` does not show this one.
        ("kubefan serve --max-unind", "--max-unindexed-selectors"),
        ("kubefan completion el", "elvish"),
    ] {
        let count = words.split(' ').count();
        let last = words.rsplit(' ').next().unwrap_or_default();
        let script = format!(
            "source {file}; COMP_WORDS=({words}); COMP_CWORD={}; _kubefan kubefan {last} x; \
             echo \"${{COMPREPLY[@]}}\"",
            count - 1
        );
        let Some(output) = bash(&script) else { return };
        assert_eq!(output.trim(), expected, "{words}");
    }
}
