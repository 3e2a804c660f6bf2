//! The flags of the subcommands that ask a running kubefan.

use std::path::PathBuf;

use clap::Args;
use http::Uri;
use kubefan_core::upstream::{Client, ClientConfig, ConnectError, OtherServer};

use crate::config::{Problem, Problems, address};
use crate::net::is_loopback;

/// Flags of the subcommands that ask a running kubefan.
#[derive(Clone, Debug, Args)]
pub struct AdminArgs {
    /// URL of kubefan's admin listener
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8002")]
    pub admin_url: String,

    /// Send the credentials of this kubeconfig; default with an https URL: $KUBECONFIG,
    /// ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Send the credentials of this context; default: the current context
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Send the token in this file, not the credentials of a kubeconfig
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub token_file: Option<PathBuf>,

    /// kubefan has a certificate of this authority (PEM); default: the authority in the kubeconfig,
    /// or those of the system
    #[arg(long, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify")]
    pub certificate_authority: Option<PathBuf>,

    /// kubefan has a certificate for this name, such as that of its Service; default: the host of
    /// the URL
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,

    /// Accept any certificate; what is between this machine and kubefan may then read the
    /// credentials
    #[arg(long)]
    pub insecure_skip_tls_verify: bool,
}

// === impl AdminArgs ===

impl AdminArgs {
    /// Returns an error if credentials would be sent over plain HTTP to another machine, or if the
    /// flags do not fit the URL.
    ///
    /// # Errors
    /// The problems, each with its flag.
    pub(super) fn check(&self) -> Result<(), Problems> {
        let problems = self.problems();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Problems::new(problems)),
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let text = &self.admin_url;
        let problem = |flag, message| vec![address::flag_problem(flag, message)];
        let Some(url) = self.url() else {
            let message = format!("{text:?} is not an http:// or https:// URL");
            return problem("--admin-url", message);
        };
        if is_tls(&url) {
            return Vec::new();
        }
        if let Some(flag) = self.flag_of_tls() {
            return problem(
                flag,
                format!("{text:?} in --admin-url is not an https:// URL"),
            );
        }
        if self.names_credentials() && !is_loopback(url.host().unwrap_or_default()) {
            let message = format!(
                "{text:?} is plain HTTP to another machine, so others may read the credentials; \
                 use an https:// URL, or kubectl port-forward"
            );
            return problem("--admin-url", message);
        }
        Vec::new()
    }

    /// Returns the URL, or `None` if it is not one of a server.
    fn url(&self) -> Option<Uri> {
        let url: Uri = self.admin_url.parse().ok()?;
        let is_server = matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some();
        is_server.then_some(url)
    }

    /// Returns true if a flag names the credentials to send.
    pub fn names_credentials(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.token_file.is_some()
    }

    /// Returns a given flag that only makes sense with TLS.
    fn flag_of_tls(&self) -> Option<&'static str> {
        let flags = [
            (
                self.certificate_authority.is_some(),
                "--certificate-authority",
            ),
            (self.tls_server_name.is_some(), "--tls-server-name"),
            (self.insecure_skip_tls_verify, "--insecure-skip-tls-verify"),
        ];
        flags
            .into_iter()
            .find_map(|(is_given, flag)| is_given.then_some(flag))
    }

    /// Makes the client of kubefan, and gets its credentials. Without TLS there are none, unless a
    /// flag names them: on loopback kubefan needs none.
    ///
    /// # Errors
    /// If the credentials or certificates can't be used.
    pub(super) async fn client(&self) -> Result<Client, ConnectError> {
        let config = ClientConfig {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            token_file: self.token_file.clone(),
            ..ClientConfig::default()
        };
        if !self.url().is_some_and(|url| is_tls(&url)) {
            let server = Some(self.admin_url.clone());
            return Client::connect(ClientConfig { server, ..config }).await;
        }
        let kubefan = OtherServer {
            url: self.admin_url.clone(),
            certificate_authority: self.certificate_authority.clone(),
            tls_server_name: self.tls_server_name.clone(),
            insecure_skip_tls_verify: self.insecure_skip_tls_verify,
        };
        Client::connect_to(kubefan, config).await
    }
}

fn is_tls(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        admin: AdminArgs,
    }

    fn parsed(line: &str) -> AdminArgs {
        let words = std::iter::once("p").chain(line.split_whitespace());
        Program::try_parse_from(words)
            .expect("clap accepts it")
            .admin
    }

    #[test]
    fn credentials_are_never_sent_in_plain_text_to_another_machine() {
        for (line, expected) in [
            ("", None),
            ("--admin-url https://kubefan.example", None),
            ("--admin-url HTTPS://kubefan.example:8002", None),
            ("--token-file t", None),
            ("--context c --admin-url http://localhost:1", None),
            ("--context c --admin-url http://LOCALHOST:1", None),
            ("--context c --admin-url http://127.0.0.2:1", None),
            ("--kubeconfig k --admin-url http://[::1]:1", None),
            ("--admin-url http://kubefan.example:8002", None),
            (
                "--token-file t --admin-url http://kubefan.example",
                Some("--admin-url: \"http://kubefan.example\" is plain HTTP to another machine"),
            ),
            (
                "--context c --admin-url http://localhost.example",
                Some("is plain HTTP to another machine"),
            ),
            (
                "--kubeconfig k --admin-url http://127.0.0.1.example",
                Some("is plain HTTP to another machine"),
            ),
            (
                "--admin-url 127.0.0.1:8002",
                Some("--admin-url: \"127.0.0.1:8002\" is not an http:// or https:// URL"),
            ),
            ("--admin-url ftp://a", Some("is not an http:// or https://")),
            (
                "--insecure-skip-tls-verify",
                Some("--insecure-skip-tls-verify: \"http://127.0.0.1:8002\" in --admin-url is not"),
            ),
            (
                "--tls-server-name a",
                Some("--tls-server-name: \"http://127.0.0.1:8002\" in --admin-url is not"),
            ),
        ] {
            let found = parsed(line)
                .check()
                .map_err(|problems| problems.to_string());
            match expected {
                None => assert_eq!(found, Ok(()), "{line}"),
                Some(part) => {
                    let found = found.expect_err(line);
                    assert!(found.contains(part), "{line}: {found}");
                }
            }
        }
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        Program::command().debug_assert();
        for line in [
            "--token-file t --context c",
            "--token-file t --kubeconfig k",
            "--certificate-authority f --insecure-skip-tls-verify",
        ] {
            let words = std::iter::once("p").chain(line.split_whitespace());
            let refused = Program::try_parse_from(words).is_err();
            assert!(refused, "{line}");
        }
    }

    #[test]
    fn the_default_is_the_default_address_of_the_listener() {
        let serve = crate::config::schema();
        let schema: serde_json::Value = serde_json::from_str(&serve).expect("JSON");
        let address = schema.pointer("/properties/admin/default/address");
        let address = address.and_then(serde_json::Value::as_str);
        let expected = address.map(|address| format!("http://{address}"));
        assert_eq!(Some(parsed("").admin_url), expected);
    }
}
