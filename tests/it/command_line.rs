//! `kubefan version` and `kubefan completion`, with the built binary.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::programs::kubefan::run;

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// The output of a command that succeeds.
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
    assert_eq!(json["features"], serde_json::json!(["proxy", "tools"]));
    for (key, word) in [("rustc", "rustc 1."), ("target", std::env::consts::ARCH)] {
        let value = json[key].as_str().expect("text");
        assert!(
            value.contains(word) && text.contains(value),
            "{key}: {value}, {text}"
        );
    }
    assert_eq!(run(&["version", "-o", "xml"]).code, Some(64));
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
