//! Records how the binary is built, for `kubefan version`, and which programs the tests may start.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    let version = version.trim();
    println!("cargo::rustc-env=KUBEFAN_RUSTC={version}");
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=KUBEFAN_TARGET={target}");
    // The parts that a user of the binary notices.
    let mut features = "proxy".to_owned();
    for (variable, name) in [
        ("CARGO_FEATURE_TOOLS", "tools"),
        ("CARGO_FEATURE_TOP", "top"),
    ] {
        if env::var_os(variable).is_some() {
            features.push(',');
            features.push_str(name);
        }
    }
    println!("cargo::rustc-env=KUBEFAN_FEATURES={features}");
    programs_of_tests();
    println!("cargo::rerun-if-env-changed=KUBEFAN_GIT_COMMIT");
    // A debug build does not record the commit, because each commit would then build everything again.
    let is_optimised = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if is_optimised
        && env::var_os("KUBEFAN_GIT_COMMIT").is_none()
        && let Some(commit) = commit_of_checkout()
    {
        println!("cargo::rustc-env=KUBEFAN_GIT_COMMIT={commit}");
    }
}

/// Sets a cfg for each set of programs that the tests may start. Tests of programs that no variable
/// names are ignored.
fn programs_of_tests() {
    // Either of the two may name a directory with all programs.
    let apiserver = ["KUBEBUILDER_ASSETS", "KUBEFAN_TEST_ASSETS"].as_slice();
    let deploy_tools = ["KUBEFAN_DEPLOY_TOOLS"].as_slice();
    for (cfg, variables) in [("apiserver", apiserver), ("deploy_tools", deploy_tools)] {
        println!("cargo::rustc-check-cfg=cfg({cfg})");
        for variable in variables {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        let is_named = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
        if variables.iter().any(is_named) {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
}

/// The commit of the checkout that is built; `None` if the sources are none, or git is not installed.
fn commit_of_checkout() -> Option<String> {
    let sources = env::var("CARGO_MANIFEST_DIR").ok()?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .current_dir(&sources)
            .args(arguments)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The sources may be a copy within another repository.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != Path::new(&sources).canonicalize().ok()? {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            let path = Path::new(&sources).join(path);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    git(&["rev-parse", "HEAD"])
}
