//! Plugins that are shell scripts.

use std::path::Path;

use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

fn plugin(config: Value) -> ExecPlugin {
    let config = serde_json::from_value(config).expect("the configuration of a plugin");
    ExecPlugin { config }
}

fn script(text: &str) -> ExecPlugin {
    plugin(json!({ "command": "/bin/sh", "args": ["-c", text], "interactiveMode": "Never" }))
}

/// A log in a file.
#[derive(Clone)]
struct Log(std::path::PathBuf);

impl Log {
    fn in_folder(folder: &Path) -> Self {
        Self(folder.join("log"))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }

    fn install(&self) -> tracing::subscriber::DefaultGuard {
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(self.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = std::fs::File;

    fn make_writer(&self) -> std::fs::File {
        let mut file = std::fs::OpenOptions::new();
        let opened = file.create(true).append(true).open(&self.0);
        opened.expect("a log")
    }
}

#[tokio::test]
async fn json_and_yaml_are_credentials() {
    let json = r#"{"kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"2030-01-01T00:00:00Z"}}"#;
    let yaml = "kind: ExecCredential\nstatus:\n  token: t\n  expirationTimestamp: \"2030-01-01T00:00:00Z\"";
    for text in [json, yaml] {
        let plugin = script(&format!("cat <<'END'\n{text}\nEND"));
        let credential = plugin.run(Occasion::Start).await.expect("a credential");
        assert_eq!(credential.token.expect("a token"), "Bearer t");
        assert!(credential.expires_at.is_some() && credential.certificate.is_none());
    }
    let pair = r#"echo '{"status":{"clientCertificateData":"c","clientKeyData":"k"}}'"#;
    let credential = script(pair).run(Occasion::Start).await.expect("a pair");
    let expected = ("c".to_owned(), "k".to_owned());
    assert_eq!(credential.certificate, Some(expected));
}

#[tokio::test]
async fn a_plugin_is_told_what_it_is_for() {
    let text = r#"printf '{"status":{"token":"%s %s"}}' "$NAME" "$(echo "$KUBERNETES_EXEC_INFO" | base64 -w0)""#;
    let mut plugin = script(text);
    plugin.config.api_version = Some("client.authentication.k8s.io/v1".to_owned());
    let variable = [("name", "NAME"), ("value", "value")];
    let variable = variable.map(|(key, value)| (key.to_owned(), value.to_owned()));
    plugin.config.env = Some(vec![HashMap::from(variable)]);
    let credential = plugin.run(Occasion::Start).await.expect("a credential");
    let token = credential.token.expect("a token");
    let token = token.to_str().expect("text");
    let info = token.strip_prefix("Bearer value ").expect("the variable");
    let info = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, info);
    let info: Value = serde_json::from_slice(&info.expect("base64")).expect("JSON");
    let expected = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": { "interactive": false },
    });
    assert_eq!(info, expected);
}

#[tokio::test]
async fn each_failure_has_its_own_words_without_the_output() {
    for (text, expected) in [
        ("echo a-secret; echo a-secret >&2; exit 3", "exit status: 3"),
        // A shell in the background ignores SIGINT.
        ("kill -KILL $$", "signal: 9"),
        ("echo a-secret", "is not an ExecCredential"),
        ("echo '{}'", "no status"),
        ("echo '{\"status\":{}}'", "neither a token nor"),
        (
            "echo '{\"status\":{\"clientCertificateData\":\"c\"}}'",
            "neither a token nor",
        ),
        (
            "echo '{\"status\":{\"token\":\"t\",\"expirationTimestamp\":\"a-secret\"}}'",
            "expirationTimestamp is not a time",
        ),
    ] {
        let failed = script(text).run(Occasion::Renewal).await;
        let error = failed.err().expect(expected);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(expected), "{text}: {shown}");
        assert!(!shown.contains("a-secret"), "{text}: {shown}");
    }
    let always = plugin(json!({ "command": "/bin/true", "interactiveMode": "Always" }));
    if !io::stdin().is_terminal() {
        let failed = always.run(Occasion::Start).await;
        let error = failed.err().expect("no terminal").to_string();
        assert!(error.contains("it needs a terminal"), "{error}");
    }
}

/// Time is paused, so it passes while only the plugin runs.
#[tokio::test(start_paused = true)]
async fn a_slow_plugin_is_logged_and_then_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Log::in_folder(folder.path());
    let _installed = log.install();
    for (occasion, limit) in [
        (Occasion::Start, START_TIMEOUT),
        (Occasion::Renewal, RENEWAL_TIMEOUT),
    ] {
        let started = tokio::time::Instant::now();
        let slow = plugin(json!({ "command": "/bin/sleep", "args": ["1000"] }));
        let failed = slow.run(occasion).await;
        let error = failed.err().expect("it is too slow").to_string();
        assert_eq!(error, format!("it did not end within {limit:?}"));
        assert_eq!(started.elapsed(), limit);
    }
    let said = log.text();
    let waiting = "waiting for the exec plugin /bin/sleep";
    assert_eq!(said.matches(waiting).count(), 2, "{said}");
}

#[tokio::test]
async fn what_a_plugin_says_later_is_logged() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Log::in_folder(folder.path());
    let _installed = log.install();
    // More than a pipe holds, and more than is logged.
    let text = "echo 'login expired' >&2; head -c 200000 /dev/zero | tr '\\0' x >&2; exit 1";
    let failed = script(text).run(Occasion::Renewal).await;
    let error = failed.err().expect("it failed").to_string();
    assert_eq!(error, "it failed with exit status: 1");
    let said = log.text();
    assert!(
        said.contains("exec plugin /bin/sh: \"login expired\""),
        "{said}"
    );
    assert!(said.len() < 32 << 10, "{}", said.len());
}
