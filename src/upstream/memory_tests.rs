//! Connections to an API server in the same process: no sockets, so paused time stands still while
//! anything is under way.

use std::io;
use std::sync::Arc;

use http::Uri;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use tokio::io::DuplexStream;

use super::connector::Connector;
use super::connector::Tls;
use super::dedicated::Opener;
use super::transport::Stack;
use super::transport::Transport;

/// Opens a connection, or says why there is none.
pub(crate) type Dial = Arc<dyn Fn() -> io::Result<DuplexStream> + Send + Sync>;

/// A transport over what `dial` gives.
pub(super) fn stack(dial: &Dial, server: &Uri) -> Stack {
    let connector = || Connector::in_memory(no_tls(), Arc::clone(dial));
    Stack::new(Transport::new(connector(), connector(), server.clone()))
}

/// What opens connections over what `dial` gives.
pub(super) fn opener(dial: &Dial, server: &Uri) -> Opener {
    let connector = || Connector::in_memory(no_tls(), Arc::clone(dial));
    Opener::new(connector(), connector(), server.clone())
}

/// A connector has to have one, though no URL here is https.
fn no_tls() -> Tls {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.expect("the provider has the default versions");
    let config = builder.with_root_certificates(RootCertStore::empty());
    Tls::new(config.with_no_client_auth(), None)
}
