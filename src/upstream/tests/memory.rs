//! Connections to an API server in the same process. They use no sockets, so tokio's paused clock
//! does not advance while a request is being processed.

use std::sync::Arc;

use http::Uri;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;

use crate::upstream::connect::connector::Connector;
use crate::upstream::connect::connector::Dial;
use crate::upstream::connect::connector::TlsSettings;
use crate::upstream::connect::transport::Stack;
use crate::upstream::connect::transport::Transport;
use crate::upstream::dedicated::ConnectionOpener;

/// A stack without credentials, whose connections are opened by `dial`.
pub(in crate::upstream) fn stack(dial: &Dial, server: &Uri) -> Stack {
    let connector = || Connector::in_memory(no_tls(), Arc::clone(dial));
    Stack::new(Transport::new(connector(), connector(), server.clone()))
}

/// An opener of dedicated connections, which are opened by `dial`.
pub(in crate::upstream) fn opener(dial: &Dial, server: &Uri) -> ConnectionOpener {
    let connector = || Connector::in_memory(no_tls(), Arc::clone(dial));
    ConnectionOpener::new(connector(), connector(), server.clone())
}

/// TLS settings without certificates. A connector needs some, although no URL here is https.
fn no_tls() -> TlsSettings {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.expect("the provider has the default versions");
    let config = builder.with_root_certificates(RootCertStore::empty());
    TlsSettings::new(config.with_no_client_auth(), None)
}
