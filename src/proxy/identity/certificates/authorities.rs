//! The authorities of client certificates and of authenticating proxies, from files or from what
//! the API server publishes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::Client;
use parking_lot::Mutex;
use rustls::DistinguishedName;
use serde_json::Value;

use super::front_proxy::FrontProxy;
use super::published::PublishedAuthentication;
use super::reload::WatchedFiles;
use super::users::CertificateAuthorities;

/// Where the API server publishes its authorities.
const PUBLISHED: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// How often kubefan reads again what the API server publishes.
const INTERVAL: Duration = Duration::from_secs(60);
/// How often kubefan reads again at start if there is no clear answer, and how long it waits before
/// each time. No caller is judged during this time.
const START_ATTEMPTS: usize = 5;
const START_PAUSE: Duration = Duration::from_secs(1);

/// The sources of the authorities. For a missing setting, what the API server publishes is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthoritySources {
    /// File (PEM) with the authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// File (PEM) with the authorities of authenticating proxies.
    pub request_header_ca: Option<PathBuf>,
    /// The common names of authenticating proxies; any name if this is empty. It is used only with
    /// `request_header_ca`.
    pub request_header_allowed_names: Vec<String>,
}

/// The authorities in use.
#[derive(Debug, Default)]
pub(in crate::identity) struct Authorities {
    pub(in crate::identity) client: Option<CertificateAuthorities>,
    pub(in crate::identity) front_proxy: Option<FrontProxy>,
}

/// The files of [`AuthoritySources`]. Their authorities can be used.
#[derive(Debug)]
pub struct AuthorityFiles {
    sources: AuthoritySources,
    files: WatchedFiles,
}

/// Called with the names of all authorities of client certificates when they change.
type OnChange = dyn Fn(Vec<DistinguishedName>) + Send + Sync;

/// Updates the authorities when their sources change.
struct Loader {
    sources: AuthoritySources,
    client: Client,
    current: Arc<ArcSwap<Authorities>>,
    on_change: Box<OnChange>,
    inputs: Mutex<Inputs>,
}

/// What the API server publishes about its own authentication.
enum Published {
    Read(PublishedAuthentication),
    /// The API server publishes nothing, because it accepts no client certificates.
    Missing,
    /// kubefan may not read the ConfigMap.
    Forbidden,
    /// The ConfigMap cannot be used. That was logged.
    Malformed,
    /// The API server has given no clear answer.
    Unknown,
}

/// What the sources contained when they were last read.
#[derive(Clone, Default, PartialEq, Eq)]
struct Inputs {
    client_ca: Option<Vec<u8>>,
    request_header_ca: Option<Vec<u8>>,
    published: PublishedAuthentication,
}

/// Loads the authorities into `current`, and updates them in the background when their sources
/// change. Calls `on_change` with the names of the authorities, now and after each change.
///
/// # Errors
/// If what the API server publishes can't be used. It may be missing.
pub(in crate::identity) async fn load(
    AuthorityFiles { sources, files }: AuthorityFiles,
    client: Client,
    current: Arc<ArcSwap<Authorities>>,
    on_change: impl Fn(Vec<DistinguishedName>) + Send + Sync + 'static,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let loader = Arc::new(Loader {
        sources,
        client,
        current,
        on_change: Box::new(on_change),
        inputs: Mutex::default(),
    });
    let published = loader.read_published_at_start().await;
    loader.update(|inputs| {
        loader.sources.take_files(inputs, &files);
        if let Published::Read(published) = &published {
            inputs.published = published.clone();
        }
    })?;
    loader.warn_of_differences(&published);
    let reloaded = Arc::clone(&loader);
    files.watch(shutdown, move |files| {
        reloaded.update(|inputs| reloaded.sources.take_files(inputs, files))
    });
    shutdown.spawn_background(async move { loader.follow_published().await });
    Ok(())
}

// === impl AuthoritySources ===

impl AuthoritySources {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file can't be read or has no authorities.
    pub async fn read(self) -> anyhow::Result<AuthorityFiles> {
        let paths = [&self.client_ca, &self.request_header_ca];
        let paths: Vec<_> = paths.into_iter().flatten().cloned().collect();
        let files = WatchedFiles::read(paths).await?;
        let mut inputs = Inputs::default();
        self.take_files(&mut inputs, &files);
        bundle(&self.client_ca, &inputs.client_ca, &None)?;
        bundle(&self.request_header_ca, &inputs.request_header_ca, &None)?;
        Ok(AuthorityFiles {
            sources: self,
            files,
        })
    }

    /// Puts the contents of the files into `inputs`.
    fn take_files(&self, inputs: &mut Inputs, files: &WatchedFiles) {
        let mut contents = files.contents().map(<[u8]>::to_vec);
        let mut take = |path: &Option<PathBuf>| path.as_ref().and_then(|_| contents.next());
        inputs.client_ca = take(&self.client_ca);
        inputs.request_header_ca = take(&self.request_header_ca);
    }
}

// === impl Loader ===

impl Loader {
    /// Changes the inputs, and uses the authorities in them. Changes nothing if there is an error.
    fn update(&self, change: impl FnOnce(&mut Inputs)) -> anyhow::Result<()> {
        let mut inputs = self.inputs.lock();
        let mut changed = inputs.clone();
        change(&mut changed);
        let authorities = self.authorities(&changed)?;
        let proxies = authorities.front_proxy.as_ref();
        let proxies = proxies.map(|proxy| &proxy.authorities);
        let all = authorities.client.iter().chain(proxies);
        let names: Vec<_> = all.flat_map(CertificateAuthorities::names).collect();
        self.current.store(Arc::new(authorities));
        *inputs = changed;
        (self.on_change)(names);
        Ok(())
    }

    fn authorities(&self, inputs: &Inputs) -> anyhow::Result<Authorities> {
        let published = &inputs.published;
        let client = bundle(
            &self.sources.client_ca,
            &inputs.client_ca,
            &published.client_ca,
        )?;
        let proxies = bundle(
            &self.sources.request_header_ca,
            &inputs.request_header_ca,
            &published.request_header_ca,
        )?;
        let allowed_names = match self.sources.request_header_ca {
            Some(_) => &self.sources.request_header_allowed_names,
            None => &published.request_header_allowed_names,
        };
        let front_proxy = proxies.map(|authorities| FrontProxy {
            authorities,
            allowed_names: allowed_names.clone(),
            headers: published.remote_headers.clone(),
        });
        Ok(Authorities {
            client,
            front_proxy,
        })
    }

    async fn read_published(&self) -> Published {
        let config_map = match self.client.get_json::<Value>(PUBLISHED).await {
            Ok(config_map) => config_map.to_string(),
            Err(error) => {
                let (is_missing, is_forbidden) = (error.is_not_found(), error.is_forbidden());
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "cannot read {PUBLISHED}");
                return match is_missing {
                    true => Published::Missing,
                    false if is_forbidden => Published::Forbidden,
                    false => Published::Unknown,
                };
            }
        };
        match PublishedAuthentication::from_config_map(config_map.as_bytes()) {
            Ok(published) => Published::Read(published),
            Err(error) => {
                let error = &*error as &dyn std::error::Error;
                tracing::warn!(error, "cannot use {PUBLISHED}");
                Published::Malformed
            }
        }
    }

    /// Reads what the API server publishes. If there is no clear answer, tries again a few times.
    async fn read_published_at_start(&self) -> Published {
        for _ in 0..START_ATTEMPTS {
            match self.read_published().await {
                Published::Unknown => tokio::time::sleep(START_PAUSE).await,
                published => return published,
            }
        }
        self.read_published().await
    }

    /// Warns if kubefan will judge certificates differently from the API server.
    fn warn_of_differences(&self, published: &Published) {
        let inputs = self.inputs.lock();
        let ignored = "a client certificate is ignored, unless a flag names its authority";
        let published = match published {
            Published::Forbidden => {
                tracing::warn!("kubefan may not read {PUBLISHED}: {ignored}");
                return;
            }
            Published::Unknown => {
                tracing::warn!("kubefan cannot read {PUBLISHED} now: {ignored}");
                return;
            }
            Published::Read(published) if *published != PublishedAuthentication::default() => {
                published
            }
            Published::Malformed => return,
            Published::Read(_) | Published::Missing => {
                tracing::info!("the API server accepts no client certificates: {ignored}");
                return;
            }
        };
        for (flag, file, published) in [
            ("--client-ca-file", &inputs.client_ca, &published.client_ca),
            (
                "--requestheader-client-ca-file",
                &inputs.request_header_ca,
                &published.request_header_ca,
            ),
        ] {
            let published = published.as_ref().map(|text| text.trim().as_bytes());
            let file = file.as_ref().map(|file| file.trim_ascii());
            if file.is_some() && file != published {
                tracing::warn!("{flag} differs from what the API server uses, see {PUBLISHED}");
            }
        }
    }

    /// Reads repeatedly what the API server publishes.
    async fn follow_published(&self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let Published::Read(published) = self.read_published().await else {
                continue;
            };
            if self.inputs.lock().published == published {
                continue;
            }
            match self.update(|inputs| inputs.published = published) {
                Ok(()) => tracing::info!("changed authorities of client certificates are in use"),
                Err(error) => {
                    let error = &*error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "changed authorities of client certificates are not used"
                    );
                }
            }
        }
    }
}

/// Returns the authorities in a file, or without a file, those that the API server publishes.
fn bundle(
    path: &Option<PathBuf>,
    file: &Option<Vec<u8>>,
    published: &Option<String>,
) -> anyhow::Result<Option<CertificateAuthorities>> {
    let (path, pem) = match (path, file, published) {
        (Some(path), Some(file), _) => (path.clone(), file.as_slice()),
        (_, _, Some(published)) => (PUBLISHED.into(), published.as_bytes()),
        _ => return Ok(None),
    };
    let authorities = CertificateAuthorities::from_pem(pem).map_err(|error| {
        let text = format!("{}: {error}", path.display());
        error.context(text)
    });
    authorities.map(Some)
}

#[cfg(test)]
mod tests;
