//! Records how the binary is built, for `kubefan version`.

use std::env;
use std::process::Command;

/// The features that a user of the binary notices.
const FEATURES: [&str; 2] = ["proxy", "tools"];

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
    let is_on = |name: &&str| {
        let variable = format!("CARGO_FEATURE_{}", name.to_uppercase());
        env::var_os(variable).is_some()
    };
    let features: Vec<&str> = FEATURES.into_iter().filter(is_on).collect();
    let features = features.join(",");
    println!("cargo::rustc-env=KUBEFAN_FEATURES={features}");
}
