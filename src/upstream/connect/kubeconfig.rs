//! Loads kubeconfig files or a pod's service account, and makes the connectors of both identities.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use hyper_util::client::proxy::matcher::Intercept;
use kube::client::ConfigExt;
use kube::config::AuthInfo;
use kube::config::Config;
use kube::config::KubeConfigOptions;
use kube::config::Kubeconfig;
use kube::config::KubeconfigError;
use rustls::pki_types::ServerName;

use super::config::ClientConfig;
use super::connector::Connector;
use super::connector::TlsSettings;
use super::error::ConnectError;
use super::error::credentials_problem;
use super::error::one_line;
use super::health::Health;
use super::health::Pings;
use super::route;
use super::transport::OwnConnections;
use super::transport::Stack;
use super::transport::Stacks;
use super::transport::Transport;
use crate::upstream::dedicated::ConnectionOpener;

/// A validated kubeconfig, and its origin for error messages.
pub(in crate::upstream) struct LoadedConfig {
    origin: String,
    config: Config,
    proxy: Option<Intercept>,
    pub(in crate::upstream) pings: Pings,
}

/// Reads and validates the kubeconfig, service account, server and token file that `config` names.
pub(in crate::upstream) async fn load(config: &ClientConfig) -> Result<LoadedConfig, ConnectError> {
    let Some(server) = &config.server else {
        return Ok(find_config(config).await?.with_overrides(config));
    };
    let origin = format!("server {server}");
    let parsed: Result<Uri, _> = server.parse();
    let Ok(url) = parsed else {
        let problem = "it is not an http:// or https:// URL".to_owned();
        return Err(ConnectError::Invalid { origin, problem });
    };
    let loaded = match (&config.kubeconfig, &config.context) {
        (None, None) => LoadedConfig::new(origin, Config::new(url), None)?,
        _ => find_config(config).await?.with_server(origin, url)?,
    };
    Ok(loaded.with_overrides(config))
}

async fn find_config(config: &ClientConfig) -> Result<LoadedConfig, ConnectError> {
    let paths = match &config.kubeconfig {
        Some(path) => vec![path.clone()],
        None => paths_from_env(),
    };
    if !paths.is_empty() {
        return from_files(&paths, config.context.clone()).await;
    }
    let default_path = default_path();
    if default_path.exists() {
        return from_files(&[default_path], config.context.clone()).await;
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        return Err(ConnectError::NoKubeconfig { default_path });
    }
    let origin = "service account of this pod".to_owned();
    match Config::incluster() {
        Ok(config) => LoadedConfig::new(origin, config, None),
        Err(error) => Err(ConnectError::Invalid {
            origin,
            problem: one_line(&error),
        }),
    }
}

impl LoadedConfig {
    fn new(
        origin: String,
        mut config: Config,
        kubeconfig_proxy: Option<&str>,
    ) -> Result<Self, ConnectError> {
        let invalid = |problem| {
            let origin = origin.clone();
            Err(ConnectError::Invalid { origin, problem })
        };
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

    /// This configuration with the same credentials, but for the server `server`.
    fn with_server(mut self, origin: String, server: Uri) -> Result<Self, ConnectError> {
        // The tls-server-name belongs to the server in the kubeconfig, which is not used.
        self.config.tls_server_name = None;
        self.config.cluster_url = server;
        let origin = format!("{origin} with {}", self.origin);
        Self::new(origin, self.config, None)
    }

    fn with_overrides(mut self, config: &ClientConfig) -> Self {
        self.pings = Pings::of(config);
        if let Some(path) = &config.token_file {
            self.config.auth_info = AuthInfo {
                token_file: Some(path.display().to_string()),
                ..AuthInfo::default()
            };
        }
        self
    }

    pub(in crate::upstream) fn server(&self) -> &Uri {
        &self.config.cluster_url
    }

    pub(in crate::upstream) fn default_namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// Returns an error if this configuration is for another server than `server`.
    pub(in crate::upstream) fn check_same_server(&self, server: &Uri) -> Result<(), ConnectError> {
        if self.server() == server {
            return Ok(());
        }
        Err(ConnectError::Invalid {
            origin: self.origin.clone(),
            problem: format!(
                "the server is now {} but was {server}; changing it needs a restart",
                self.server()
            ),
        })
    }

    /// Makes both identities' connections, which share `health`, or a new one if that is `None`. The
    /// exec plugin, if any, runs on a blocking thread.
    pub(in crate::upstream) async fn stacks(
        self,
        health: Option<Arc<Health>>,
    ) -> Result<Stacks, ConnectError> {
        let origin = self.origin.clone();
        let exec = self.config.auth_info.exec.as_ref();
        let plugin = exec.and_then(|exec| exec.command.clone());
        let built = tokio::task::spawn_blocking(move || self.build(health)).await;
        let built = built.map_err(|error| kube::Error::Service(error.into()));
        built
            .and_then(|built| built)
            .map_err(|error| ConnectError::Invalid {
                origin,
                problem: match (plugin, &error) {
                    (Some(plugin), kube::Error::Auth(error)) => {
                        format!("exec plugin {plugin:?}: {}", credentials_problem(error))
                    }
                    (None, kube::Error::Auth(error)) => credentials_problem(error),
                    (_, error) => one_line(error),
                },
            })
    }

    fn build(self, health: Option<Arc<Health>>) -> Result<Stacks, kube::Error> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only if another thread has just installed a provider, which will do.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let mut caller = self.config.clone();
        caller.auth_info = AuthInfo::default();
        caller.headers.clear();
        let kubefan = self.connectors(&self.config)?;
        let opener =
            ConnectionOpener::new(kubefan.0.clone(), kubefan.1.clone(), self.server().clone());
        let health = health.unwrap_or_else(|| Arc::new(Health::new(opener.clone(), self.pings)));
        let kubefan = self
            .transport(kubefan, &health)
            .with_credentials(&self.config)?;
        let caller = Stack::new(self.transport(self.connectors(&caller)?, &health));
        Ok(Stacks {
            kubefan,
            own: Some(OwnConnections {
                caller,
                opener,
                health,
            }),
        })
    }

    fn transport(&self, (http1, http2): (Connector, Connector), health: &Arc<Health>) -> Transport {
        Transport::new(http1, http2, self.server().clone(), Arc::clone(health))
    }

    /// Two connectors with the certificates in `config`: for HTTP/1.1, and for HTTP/2.
    fn connectors(&self, config: &Config) -> Result<(Connector, Connector), kube::Error> {
        let server_name = match &config.tls_server_name {
            None => None,
            Some(name) => {
                let parsed = ServerName::try_from(name.clone());
                Some(parsed.map_err(|error| kube::Error::Service(error.into()))?)
            }
        };
        let http1 = TlsSettings::new(config.rustls_client_config()?, server_name);
        let http2 = http1.with_http2();
        let connector = |tls| Connector::new(tls, self.proxy.as_ref());
        Ok((connector(http1), connector(http2)))
    }
}

async fn from_files(
    paths: &[PathBuf],
    context: Option<String>,
) -> Result<LoadedConfig, ConnectError> {
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
    from_kubeconfig(names.join(":"), merged, context).await
}

async fn from_kubeconfig(
    origin: String,
    kubeconfig: Kubeconfig,
    context: Option<String>,
) -> Result<LoadedConfig, ConnectError> {
    let (context, cluster) = choose_context(&origin, &kubeconfig, context)?;
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|known| known.name == cluster);
    let cluster = cluster.and_then(|cluster| cluster.cluster.clone());
    let cluster = cluster.unwrap_or_default();
    let proxy = cluster.proxy_url.filter(|url| !url.is_empty());
    let origin = format!("context {context:?} of kubeconfig {origin}");
    let options = KubeConfigOptions {
        context: Some(context),
        ..KubeConfigOptions::default()
    };
    match Config::from_custom_kubeconfig(kubeconfig, &options).await {
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

fn not_a_server(url: &str) -> String {
    format!("server {url:?} is not an http:// or https:// URL")
}

/// The name of the context to use and the name of its cluster, after checking that both exist.
fn choose_context(
    origin: &str,
    kubeconfig: &Kubeconfig,
    context: Option<String>,
) -> Result<(String, String), ConnectError> {
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
    let mut clusters = kubeconfig.clusters.iter().map(|known| known.name.clone());
    if clusters.clone().any(|known| known == cluster) {
        return Ok((name, cluster));
    }
    Err(ConnectError::UnknownCluster {
        origin,
        context: name,
        name: cluster,
        known: clusters.by_ref().collect(),
    })
}

fn read_error(path: &Path, error: KubeconfigError) -> ConnectError {
    let path = path.to_owned();
    match error {
        KubeconfigError::ReadConfig(source, path) => ConnectError::Read { path, source },
        KubeconfigError::Parse(error) => {
            let problem = one_line(error.without_snippet());
            ConnectError::Malformed { path, problem }
        }
        error => ConnectError::Malformed {
            path,
            problem: one_line(&error),
        },
    }
}

/// The files that `KUBECONFIG` lists. Like kubectl, kubefan ignores missing files if at least one
/// file exists. If none exists, all are returned, so that the error names one.
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
