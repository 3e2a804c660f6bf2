//! Loads kubeconfig files or a pod's service account, and makes the connectors of both identities.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use hyper_util::client::proxy::matcher::Intercept;
use kube::client::ConfigExt;
use kube::config::{AuthInfo, AuthProviderConfig, Cluster, Config, Kubeconfig, KubeconfigError};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;

use super::config::ClientConfig;
use super::connection::connector::{Connector, TlsSettings};
use super::connection::{route, server_certificate};
use super::credentials::exec_plugin::{ExecPlugin, Occasion};
use super::credentials::plugin_token::PluginToken;
use super::error::{ConnectError, credentials_problem, one_line};
use super::stack::Stack;
use super::transport::dedicated::ConnectionOpener;
use super::transport::health::{Health, Pings};
use super::transport::{OwnConnections, Stacks, Transport};

/// A validated kubeconfig, and its origin for error messages.
pub(in crate::upstream) struct LoadedConfig {
    pub(super) origin: String,
    pub(in crate::upstream) config: Config,
    proxy: Option<Intercept>,
    pub(in crate::upstream) pings: Pings,
}

/// Reads and validates the kubeconfig, service account, server and token file that `config` names.
/// Blocks no thread of the runtime: a file may be a pipe.
pub(in crate::upstream) async fn load(config: &ClientConfig) -> Result<LoadedConfig, ConnectError> {
    let config = config.clone();
    let read = tokio::task::spawn_blocking(move || read(&config)).await;
    read.unwrap_or_else(|error| Err(invalid("kubeconfig", one_line(&error))))
}

pub(super) fn invalid(origin: &str, problem: String) -> ConnectError {
    ConnectError::Invalid {
        origin: origin.to_owned(),
        problem,
    }
}

fn read(config: &ClientConfig) -> Result<LoadedConfig, ConnectError> {
    let Some(server) = &config.server else {
        return find_config(config)?.with_overrides(config);
    };
    let origin = format!("server {server}");
    let url = parse_url(&origin, server)?;
    let loaded = match (&config.kubeconfig, &config.context) {
        (None, None) => LoadedConfig::new(origin, Config::new(url), None)?,
        _ => find_config(config)?.with_server(origin, url)?,
    };
    loaded.with_overrides(config)
}

/// Parses the URL of a server that a flag names.
pub(super) fn parse_url(origin: &str, url: &str) -> Result<Uri, ConnectError> {
    let problem = "it is not an http:// or https:// URL";
    url.parse().map_err(|_| invalid(origin, problem.to_owned()))
}

pub(super) fn find_config(config: &ClientConfig) -> Result<LoadedConfig, ConnectError> {
    let paths = match &config.kubeconfig {
        Some(path) => vec![path.clone()],
        None => paths_from_env(),
    };
    if !paths.is_empty() {
        return from_files(&paths, config.context.clone());
    }
    let default_path = default_path();
    if default_path.exists() {
        return from_files(&[default_path], config.context.clone());
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        return Err(ConnectError::NoKubeconfig { default_path });
    }
    let origin = "service account of this pod".to_owned();
    match Config::incluster() {
        Ok(config) => LoadedConfig::new(origin, config, None),
        Err(error) => Err(invalid(&origin, one_line(&error))),
    }
}

impl LoadedConfig {
    pub(super) fn new(
        origin: String,
        mut config: Config,
        kubeconfig_proxy: Option<&str>,
    ) -> Result<Self, ConnectError> {
        let invalid = |problem| Err(invalid(&origin, problem));
        // Automatic retries would hide the API server's answers from informers and callers.
        config.default_retry = false;
        let server = &config.cluster_url;
        if !matches!(server.scheme_str(), Some("http" | "https")) || server.host().is_none() {
            return invalid(not_a_server(&server.to_string()));
        }
        if let Some(name) = &config.tls_server_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            return invalid(format!(
                "tls-server-name {name:?} is not a DNS name or IP address"
            ));
        }
        match &config.root_cert {
            Some(certificates) if certificates.is_empty() => {
                return invalid("its certificate authority has no certificate (PEM)".to_owned());
            }
            Some(_) if config.accept_invalid_certs => {
                let problem =
                    "insecure-skip-tls-verify and a certificate authority exclude each other";
                return invalid(problem.to_owned());
            }
            _ => {}
        }
        let provider = config.auth_info.auth_provider.as_ref();
        if let Some(problem) = provider.and_then(unsupported_provider) {
            return invalid(problem);
        }
        let proxy = route::proxy(server, kubeconfig_proxy);
        if let (Some(url), None) = (kubeconfig_proxy, &proxy) {
            let wanted = "http://, https:// or socks5:// URL";
            return invalid(format!("proxy-url {url:?} is not an {wanted}"));
        }
        Ok(Self {
            origin,
            config,
            proxy,
            pings: Pings::of(&ClientConfig::default()),
        })
    }

    /// Returns this configuration with its credentials, but for the server `server`.
    fn with_server(mut self, origin: String, server: Uri) -> Result<Self, ConnectError> {
        // The tls-server-name belongs to the server in the kubeconfig, which is not used.
        self.config.tls_server_name = None;
        self.config.cluster_url = server;
        let origin = format!("{origin} with {}", self.origin);
        Self::new(origin, self.config, None)
    }

    pub(super) fn with_overrides(mut self, config: &ClientConfig) -> Result<Self, ConnectError> {
        self.pings = Pings::of(config);
        if let Some(path) = &config.ca_file {
            server_certificate::trust_file(&mut self.config, path)?;
        }
        if let Some(path) = &config.token_file {
            self.config.auth_info = AuthInfo {
                token_file: Some(path.display().to_string()),
                ..AuthInfo::default()
            };
        }
        Ok(self)
    }

    pub(in crate::upstream) fn server(&self) -> &Uri {
        &self.config.cluster_url
    }

    /// Returns an error if this configuration is for another server than `server`.
    pub(in crate::upstream) fn check_same_server(&self, server: &Uri) -> Result<(), ConnectError> {
        if self.server() == server {
            return Ok(());
        }
        let now = self.server();
        let problem =
            format!("the server is now {now} but was {server}; changing it needs a restart");
        Err(invalid(&self.origin, problem))
    }

    /// Makes the connections of both identities. They share `health`, or a new health if `health`
    /// is `None`, which means that the program starts. Waits for the exec plugin, if there is one.
    /// Dropping the future kills it.
    pub(in crate::upstream) async fn stacks(
        mut self,
        health: Option<Arc<Health>>,
    ) -> Result<Stacks, ConnectError> {
        let origin = self.origin.clone();
        let occasion = match &health {
            None => Occasion::Start,
            Some(_) => Occasion::Renewal,
        };
        if self.config.accept_invalid_certs && occasion == Occasion::Start {
            let server = self.server();
            tracing::warn!(%server, "the server's certificate is not verified (insecure-skip-tls-verify)");
        }
        let token = match ExecPlugin::take(&mut self.config.auth_info) {
            None => None,
            Some(plugin) => self.run_plugin(plugin, occasion).await?,
        };
        let built = tokio::task::spawn_blocking(move || self.build(health, token)).await;
        let built = built.unwrap_or_else(|error| Err(kube::Error::Service(error.into())));
        built.map_err(|error| match &error {
            kube::Error::Auth(error) => invalid(&origin, credentials_problem(error)),
            error => invalid(&origin, one_line(error)),
        })
    }

    /// Uses the credentials that `plugin` prints. Returns them if they are a token.
    async fn run_plugin(
        &mut self,
        plugin: ExecPlugin,
        occasion: Occasion,
    ) -> Result<Option<PluginToken>, ConnectError> {
        let ran = plugin.run(occasion).await;
        let credential = ran.map_err(|error| {
            let problem = format!("exec plugin {:?}: {error}", plugin.name());
            invalid(&self.origin, problem)
        })?;
        if let Some((certificate, key)) = credential.certificate {
            let auth = &mut self.config.auth_info;
            auth.client_certificate_data = Some(STANDARD.encode(certificate));
            auth.client_key_data = Some(STANDARD.encode(key).into());
        }
        let expires_at = credential.expires_at;
        let token = credential.token;
        Ok(token.map(|token| PluginToken::new(plugin, token, expires_at)))
    }

    fn build(
        self,
        health: Option<Arc<Health>>,
        token: Option<PluginToken>,
    ) -> Result<Stacks, kube::Error> {
        if CryptoProvider::get_default().is_none() {
            // Fails only if another thread has just installed a provider, which will do.
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let mut caller = self.config.clone();
        caller.auth_info = AuthInfo::default();
        caller.headers.clear();
        let opener = self.opener(&self.config)?;
        let health = health.unwrap_or_else(|| Arc::new(Health::new(opener.clone(), self.pings)));
        let transport = |opener| Transport::new(opener, Arc::clone(&health));
        let kubefan = transport(opener.clone()).with_credentials(&self.config)?;
        let kubefan = match token {
            Some(token) => Stack::new(token.layer(kubefan)),
            None => kubefan,
        };
        let caller = Stack::new(transport(self.opener(&caller)?));
        Ok(Stacks {
            kubefan,
            own: Some(OwnConnections {
                caller,
                opener,
                health,
            }),
        })
    }

    /// Returns the opener of connections with the certificates in `config`.
    fn opener(&self, config: &Config) -> Result<ConnectionOpener, kube::Error> {
        let server_name = match &config.tls_server_name {
            None => None,
            Some(name) => {
                let parsed = ServerName::try_from(name.clone());
                Some(parsed.map_err(|error| kube::Error::Service(error.into()))?)
            }
        };
        let service = |error: rustls::Error| kube::Error::Service(error.into());
        let verifier = server_certificate::verifier(config).map_err(service)?;
        // The authorities that kube would use are not needed, and those of the
        // system may be missing.
        let mut without_authorities = config.clone();
        without_authorities.root_cert = Some(Vec::new());
        without_authorities.root_cert_file = None;
        let mut tls = without_authorities.rustls_client_config()?;
        tls.dangerous().set_certificate_verifier(verifier);
        let tls = TlsSettings::new(tls, server_name);
        let connector = |tls| Connector::new(tls, self.proxy.as_ref());
        Ok(ConnectionOpener {
            http2: connector(tls.with_http2()),
            http1: connector(tls),
            server: self.server().clone(),
        })
    }
}

fn from_files(paths: &[PathBuf], context: Option<String>) -> Result<LoadedConfig, ConnectError> {
    let names: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let mut merged = Kubeconfig::default();
    for path in paths {
        let malformed = |error| read_error(path, error);
        let next = Kubeconfig::read_from(path).map_err(malformed)?;
        merged = merged.merge(next).map_err(malformed)?;
    }
    from_kubeconfig(names.join(":"), merged, context)
}

fn from_kubeconfig(
    origin: String,
    mut kubeconfig: Kubeconfig,
    context: Option<String>,
) -> Result<LoadedConfig, ConnectError> {
    let (context, cluster) = choose_context(&origin, &kubeconfig, context)?;
    let proxy = cluster.proxy_url.filter(|url| !url.is_empty());
    let origin = format!("context {context:?} of kubeconfig {origin}");
    kubeconfig.current_context = Some(context);
    match Config::try_from(kubeconfig) {
        Ok(config) => LoadedConfig::new(origin, config, proxy.as_deref()),
        Err(error) => Err(ConnectError::Invalid {
            origin,
            problem: match (&error, cluster.server) {
                (KubeconfigError::ParseClusterUrl(_), Some(server)) => not_a_server(&server),
                _ => one_line(&error),
            },
        }),
    }
}

/// Returns the error message with an alternative to `provider`, or `None` if kubefan supports it.
fn unsupported_provider(provider: &AuthProviderConfig) -> Option<String> {
    let advice = match provider.name.as_str() {
        "oidc" if provider.config.contains_key("id-token") => return None,
        "oidc" => {
            "log in again, because it has no id-token, or use an exec plugin such as kubelogin"
        }
        "gcp" => {
            "use the exec plugin gke-gcloud-auth-plugin, as `gcloud container clusters get-credentials` writes it"
        }
        "azure" => "use the exec plugin kubelogin of Azure",
        _ => "use an exec plugin",
    };
    let name = &provider.name;
    Some(format!("auth-provider {name:?} is not supported; {advice}"))
}

fn not_a_server(url: &str) -> String {
    format!("server {url:?} is not an http:// or https:// URL")
}

/// Returns the name of the context to use and its cluster, after checking that both
/// exist.
fn choose_context(
    origin: &str,
    kubeconfig: &Kubeconfig,
    context: Option<String>,
) -> Result<(String, Cluster), ConnectError> {
    let origin = origin.to_owned();
    let contexts = || kubeconfig.contexts.iter().map(|known| known.name.clone());
    let current = || kubeconfig.current_context.clone();
    let Some(name) = context.or_else(current).filter(|name| !name.is_empty()) else {
        let known = contexts().collect();
        return Err(ConnectError::NoCurrentContext { origin, known });
    };
    let context = kubeconfig.contexts.iter().find(|known| known.name == name);
    let Some(context) = context.and_then(|context| context.context.as_ref()) else {
        let known = contexts().collect();
        return Err(ConnectError::UnknownContext {
            origin,
            name,
            known,
        });
    };
    let cluster = context.cluster.clone();
    let clusters = kubeconfig.clusters.iter();
    if let Some(found) = clusters.clone().find(|known| known.name == cluster) {
        return Ok((name, found.cluster.clone().unwrap_or_default()));
    }
    Err(ConnectError::UnknownCluster {
        origin,
        context: name,
        name: cluster,
        known: clusters.map(|known| known.name.clone()).collect(),
    })
}

fn read_error(path: &Path, error: KubeconfigError) -> ConnectError {
    let problem = match error {
        KubeconfigError::ReadConfig(source, path) => return ConnectError::Read { path, source },
        KubeconfigError::Parse(error) => one_line(error.without_snippet()),
        error => one_line(&error),
    };
    let path = path.to_owned();
    ConnectError::Malformed { path, problem }
}

/// Returns the files that `KUBECONFIG` lists. Like kubectl, kubefan ignores missing files if at
/// least one file exists. If none exists, all are returned, so that the error names one.
fn paths_from_env() -> Vec<PathBuf> {
    let Some(list) = std::env::var_os("KUBECONFIG") else {
        return Vec::new();
    };
    let named: Vec<_> = std::env::split_paths(&list)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    let existing: Vec<_> = named.iter().filter(|path| path.exists()).cloned().collect();
    if existing.is_empty() { named } else { existing }
}

fn default_path() -> PathBuf {
    let home = std::env::home_dir().unwrap_or_default();
    home.join(".kube").join("config")
}

#[cfg(test)]
mod tests;
