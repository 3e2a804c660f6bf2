use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use crate::net::tls::made::DAY;
use crate::net::{Acceptor, SelfSigned};

const FILES: [&str; 4] = ["ca.crt", "ca.key", "tls.crt", "tls.key"];

fn in_directory(directory: &Path, names: &[&str]) -> SelfSigned {
    SelfSigned {
        directory: directory.to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn contents(directory: &Path) -> Vec<String> {
    FILES
        .iter()
        .map(|file| fs::read_to_string(directory.join(file)).unwrap())
        .collect()
}

/// The names of the files that differ between two readings.
fn changed(before: &[String], after: &[String]) -> Vec<&'static str> {
    let differ = |i: &usize| before[*i] != after[*i];
    (0..FILES.len()).filter(differ).map(|i| FILES[i]).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn first_start_makes_all_files_and_keeps_keys_secret() {
    let parent = TempDir::new().unwrap();
    let directory = parent.path().join("a/tls");
    let made = in_directory(&directory, &["localhost", "127.0.0.1", "::1"])
        .ensure()
        .unwrap();
    assert_eq!(made.ca_certificate, directory.join("ca.crt"));
    Acceptor::from_files(&made.server).unwrap();
    assert_eq!(mode(&directory), 0o700);
    let modes: Vec<_> = FILES.iter().map(|f| mode(&directory.join(f))).collect();
    assert_eq!(modes, [0o644, 0o600, 0o644, 0o600]);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), FILES.len());
}

#[test]
fn valid_files_are_reused_and_only_the_others_are_replaced() {
    const CA_AND_SERVER: &[&str] = &FILES;
    const SERVER: &[&str] = &["tls.crt", "tls.key"];
    let now = SystemTime::now();
    let table: [(&str, &[&str], u32, &[&str]); 7] = [
        ("same", &["localhost", "10.0.0.1"], 0, &[]),
        ("fewer names", &["10.0.0.1"], 0, &[]),
        ("another address", &["localhost", "10.0.0.2"], 0, SERVER),
        ("another name", &["kubefan.default.svc"], 0, SERVER),
        ("a month before the end", &["localhost"], 334, &[]),
        (
            "less than a month before the end",
            &["localhost"],
            336,
            SERVER,
        ),
        ("after the CA's end", &["localhost"], 3651, CA_AND_SERVER),
    ];
    for (case, names, days, expected) in table {
        let directory = TempDir::new().unwrap();
        let path = directory.path();
        in_directory(path, &["localhost", "10.0.0.1"])
            .ensure_at(now)
            .unwrap();
        let before = contents(path);
        let made = in_directory(path, names)
            .ensure_at(now + DAY * days)
            .unwrap();
        assert_eq!(changed(&before, &contents(path)), expected, "{case}");
        Acceptor::from_files(&made.server).unwrap();
        let again = contents(path);
        in_directory(path, names)
            .ensure_at(now + DAY * days)
            .unwrap();
        assert!(changed(&again, &contents(path)).is_empty(), "{case}");
    }
}

#[test]
fn a_missing_or_broken_server_file_is_replaced() {
    for file in ["tls.crt", "tls.key"] {
        for text in [None, Some("no PEM")] {
            let directory = TempDir::new().unwrap();
            let path = directory.path();
            let self_signed = in_directory(path, &["localhost"]);
            self_signed.ensure().unwrap();
            let before = contents(path);
            match text {
                None => fs::remove_file(path.join(file)).unwrap(),
                Some(text) => fs::write(path.join(file), text).unwrap(),
            }
            self_signed.ensure().unwrap();
            let after = changed(&before, &contents(path));
            assert_eq!(after, ["tls.crt", "tls.key"], "{file} {text:?}");
        }
    }
}

#[test]
fn the_ca_key_is_reused_after_a_crash_between_two_files() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    let self_signed = in_directory(path, &["localhost"]);
    self_signed.ensure().unwrap();
    let before = contents(path);
    fs::remove_file(path.join("ca.crt")).unwrap();
    self_signed.ensure().unwrap();
    assert!(!changed(&before, &contents(path)).contains(&"ca.key"));
}

#[test]
fn a_ca_without_its_key_is_replaced_once() {
    let other = KeyPair::generate().unwrap().serialize_pem();
    for key in [None, Some(other)] {
        let directory = TempDir::new().unwrap();
        let path = directory.path();
        let self_signed = in_directory(path, &["localhost"]);
        self_signed.ensure().unwrap();
        let before = contents(path);
        match key {
            None => fs::remove_file(path.join("ca.key")).unwrap(),
            Some(key) => fs::write(path.join("ca.key"), key).unwrap(),
        }
        self_signed.ensure().unwrap();
        let after = contents(path);
        assert_eq!(changed(&before, &after), FILES);
        self_signed.ensure().unwrap();
        assert!(changed(&after, &contents(path)).is_empty());
    }
}

#[test]
fn foreign_files_are_refused_and_left_alone() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let theirs = params.self_signed(&key).unwrap().pem();
    for file in ["ca.crt", "tls.crt", "tls.key"] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(file);
        fs::write(&path, &theirs).unwrap();
        let error = in_directory(directory.path(), &["localhost"]).ensure();
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with(path.to_str().unwrap()), "{text}");
        assert!(text.contains("was not made by kubefan"), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), theirs);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn errors_name_the_file_or_the_name() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    let error = in_directory(path, &["not a name"]).ensure().unwrap_err();
    let expected = "\"not a name\" is neither a DNS name nor an IP address";
    assert_eq!(error.to_string(), expected);

    fs::write(path.join("ca.key"), "no PEM").unwrap();
    let error = in_directory(path, &["localhost"]).ensure().unwrap_err();
    let expected = format!("no usable private key in {}/ca.key", path.display());
    assert_eq!(error.to_string(), expected);

    let file = path.join("file");
    fs::write(&file, "").unwrap();
    let error = in_directory(&file.join("below"), &["localhost"])
        .ensure()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot write {}/below", file.display())
    );
}
