//! Runs the exec plugin of a kubeconfig: a program that prints credentials for the API server.

use std::collections::HashMap;
use std::io;
use std::io::IsTerminal;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// After this time the log says that kubefan waits for the plugin.
const SLOW: Duration = Duration::from_secs(2);
/// How long a plugin may run at the start, when a person may have to log in.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a plugin may run later. Requests wait for it.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest output of a plugin, in bytes. A credential has some KiB.
const OUTPUT_LIMIT: u64 = 1 << 20;
/// How much of what a plugin says is logged in one run, in bytes.
const SAID_LIMIT: u64 = 16 << 10;

/// When a plugin runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream::connect) enum Occasion {
    /// The program starts: what the plugin says goes to the program's standard error, and the
    /// plugin may ask for input if it is a terminal.
    Start,
    /// Later: what the plugin says is logged, and there is no input.
    Renewal,
}

/// A plugin and how to run it.
pub(in crate::upstream::connect) struct ExecPlugin {
    config: ExecConfig,
}

/// What a plugin has printed.
pub(in crate::upstream::connect) struct Credential {
    /// The `Authorization` header.
    pub(in crate::upstream::connect) token: Option<HeaderValue>,
    /// A client certificate and its key, both PEM.
    pub(in crate::upstream::connect) certificate: Option<(String, String)>,
    pub(in crate::upstream::connect) expires_at: Option<Timestamp>,
}

/// Why a plugin has given no credentials. The text has neither the command nor its environment nor
/// its output, which may contain secrets.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::upstream) struct PluginError(String);

/// The part of an `ExecCredential` that is read.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl ExecPlugin {
    /// Takes the plugin out of `auth`. There is none if other credentials have priority.
    pub(in crate::upstream::connect) fn take(auth: &mut AuthInfo) -> Option<Self> {
        let config = auth.exec.take()?;
        let has_password = auth.username.is_some() && auth.password.is_some();
        let has_token = auth.token.is_some() || auth.token_file.is_some();
        let is_used = auth.auth_provider.is_none() && !has_password && !has_token;
        is_used.then_some(Self { config })
    }

    /// Returns the plugin's name for logs and operators.
    pub(in crate::upstream::connect) fn name(&self) -> &str {
        self.config.command.as_deref().unwrap_or_default()
    }

    /// Runs the plugin. Dropping the future kills it.
    ///
    /// # Errors
    /// If it prints no credentials in time.
    pub(in crate::upstream::connect) async fn run(
        &self,
        occasion: Occasion,
    ) -> Result<Credential, PluginError> {
        let mut child = self
            .command(occasion)?
            .spawn()
            .map_err(|error| self.unstartable(&error))?;
        let limit = match occasion {
            Occasion::Start => START_TIMEOUT,
            Occasion::Renewal => RENEWAL_TIMEOUT,
        };
        let ended = async {
            let ended = end_of(&mut child, self.name());
            tokio::pin!(ended);
            tokio::select! {
                ended = &mut ended => return ended,
                () = sleep(SLOW) => {}
            }
            tracing::warn!("waiting for the exec plugin {}", self.name());
            ended.await
        };
        let ended = timeout(limit, ended).await;
        let (status, output) = match ended {
            Ok(ended) => ended.map_err(|error| self.unstartable(&error))?,
            Err(_) => return Err(PluginError(format!("it did not end within {limit:?}"))),
        };
        if status.success() {
            credential(&output)
        } else {
            Err(PluginError(format!("it failed with {status}")))
        }
    }

    fn command(&self, occasion: Occasion) -> Result<Command, PluginError> {
        let config = &self.config;
        let program = config.command.as_deref().filter(|name| !name.is_empty());
        let mut command =
            Command::new(program.ok_or_else(|| PluginError::new("it has no command"))?);
        command.args(config.args.iter().flatten());
        for variable in config.env.iter().flatten() {
            if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
                command.env(name, value);
            }
        }
        let is_interactive = self.is_interactive(occasion)?;
        let mut spec = json!({ "interactive": is_interactive });
        if config.provide_cluster_info {
            let cluster = config.cluster.as_ref();
            let cluster = cluster.and_then(|cluster| serde_json::to_value(cluster).ok());
            let problem = "provideClusterInfo is set, but there is no cluster";
            spec["cluster"] = cluster.ok_or_else(|| PluginError::new(problem))?;
        }
        let request = HashMap::from([
            ("apiVersion", json!(config.api_version)),
            ("kind", json!("ExecCredential")),
            ("spec", spec),
        ]);
        command.env("KUBERNETES_EXEC_INFO", json!(request).to_string());
        command.stdin(if is_interactive {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
        command.stderr(match occasion {
            Occasion::Start => Stdio::inherit(),
            Occasion::Renewal => Stdio::piped(),
        });
        command.stdout(Stdio::piped()).kill_on_drop(true);
        Ok(command)
    }

    /// Returns whether the plugin may ask for input. After the start, nothing would show its
    /// question.
    fn is_interactive(&self, occasion: Occasion) -> Result<bool, PluginError> {
        let is_terminal = io::stdin().is_terminal();
        match self.config.interactive_mode {
            Some(ExecInteractiveMode::Never) => Ok(false),
            Some(ExecInteractiveMode::Always) if !is_terminal => Err(PluginError::new(
                "it needs a terminal (interactiveMode: Always), but standard input is none",
            )),
            Some(ExecInteractiveMode::Always) => Ok(true),
            Some(ExecInteractiveMode::IfAvailable) | None => {
                Ok(is_terminal && occasion == Occasion::Start)
            }
        }
    }

    fn unstartable(&self, error: &io::Error) -> PluginError {
        if error.kind() != io::ErrorKind::NotFound {
            return PluginError(format!("it cannot be started: {error}"));
        }
        let hint = self.config.install_hint.as_deref().unwrap_or_default();
        let hint = hint.split_whitespace().collect::<Vec<_>>().join(" ");
        PluginError(match hint.as_str() {
            "" => "it does not exist".to_owned(),
            hint => format!("it does not exist; {hint}"),
        })
    }
}

impl PluginError {
    /// Returns an error with a text of ours. An error is logged, so it never has the plugin's output.
    fn new(problem: &'static str) -> Self {
        Self(problem.to_owned())
    }

    /// Returns the error of an output with this problem.
    pub(super) fn malformed(problem: &'static str) -> Self {
        Self(format!("its output is not an ExecCredential: {problem}"))
    }
}

/// Returns the exit status and the output of `child`. Its standard error is logged if it is a pipe.
async fn end_of(child: &mut Child, name: &str) -> io::Result<(ExitStatus, Vec<u8>)> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = async {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(OUTPUT_LIMIT).read_to_end(&mut output).await?;
        }
        io::Result::Ok(output)
    };
    let said = async {
        if let Some(stderr) = stderr {
            log_lines(stderr, name).await;
        }
    };
    let (output, (), status) = tokio::join!(output, said, child.wait());
    Ok((status?, output?))
}

/// Logs the lines of `said` up to a limit of bytes, and discards the rest.
async fn log_lines(mut said: impl AsyncRead + Unpin, name: &str) {
    let mut lines = BufReader::new((&mut said).take(SAID_LIMIT)).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = String::from_utf8_lossy(&line);
        tracing::info!("exec plugin {name}: {:?}", line.trim_end());
    }
    drop(lines);
    // Read the rest, because a plugin with a full pipe would wait for ever. `end_of` waits for the
    // end of the plugin.
    let _ = tokio::io::copy(&mut said, &mut tokio::io::sink()).await;
}

/// Returns the credential in the output of a plugin, which is JSON or YAML.
fn credential(output: &[u8]) -> Result<Credential, PluginError> {
    let parsed: Result<ExecCredential, _> = serde_saphyr::from_slice(output);
    // The parser's message may show a token.
    let parsed = parsed.map_err(|_| PluginError::malformed("neither JSON nor YAML of one"))?;
    let status = parsed.status;
    let status = status.ok_or_else(|| PluginError::malformed("it has no status"))?;
    let token = status.token.filter(|token| !token.is_empty());
    let token = token.map(|token| {
        let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
        let mut header = header.map_err(|_| PluginError::malformed("the token is not ASCII"))?;
        header.set_sensitive(true);
        Ok(header)
    });
    let expires_at = status.expiration_timestamp.map(|time| time.parse());
    let malformed_time = "expirationTimestamp is not a time";
    let certificate = status.client_certificate_data.zip(status.client_key_data);
    let credential = Credential {
        token: token.transpose()?,
        certificate,
        expires_at: expires_at
            .transpose()
            .map_err(|_| PluginError::malformed(malformed_time))?,
    };
    if credential.token.is_none() && credential.certificate.is_none() {
        Err(PluginError::malformed(
            "it has neither a token nor a client certificate with its key",
        ))
    } else {
        Ok(credential)
    }
}

#[cfg(test)]
mod tests;
