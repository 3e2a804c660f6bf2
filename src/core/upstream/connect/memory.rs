//! Connections to an API server in this process. They use no sockets, so tokio's paused clock does
//! not advance while a request is being processed.

use std::sync::Arc;

use http::Uri;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, RootCertStore};

use crate::upstream;
use crate::upstream::connect::connection::connector::{Connector, Dial, TlsSettings};
use crate::upstream::connect::stack::Stack;
use crate::upstream::connect::transport::dedicated::ConnectionOpener;
use crate::upstream::connect::transport::health::{Health, Pings};
use crate::upstream::connect::transport::{OwnConnections, Stacks, Transport};

/// Makes the connections of both identities to `server`, without credentials; `dial` opens them.
/// They share `health`, or a new health if `health` is `None`.
pub(in crate::upstream) fn stacks(
    dial: &Dial,
    server: &Uri,
    roots: &RootCertStore,
    health: Option<Arc<Health>>,
) -> Stacks {
    let connector = |tls: TlsSettings| Connector::in_memory(tls, Arc::clone(dial));
    let opener = ConnectionOpener {
        http1: connector(tls(roots)),
        http2: connector(tls(roots).with_http2()),
        server: server.clone(),
    };
    let pings = Pings::of(&upstream::ClientConfig::default());
    let health = health.unwrap_or_else(|| Arc::new(Health::new(opener.clone(), pings)));
    let stack = || Stack::new(Transport::new(opener.clone(), Arc::clone(&health)));
    Stacks {
        kubefan: stack(),
        own: Some(OwnConnections {
            caller: stack(),
            opener,
            health,
        }),
    }
}

fn tls(roots: &RootCertStore) -> TlsSettings {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.expect("the provider has the default versions");
    let config = builder.with_root_certificates(roots.clone());
    TlsSettings::new(config.with_no_client_auth(), None)
}
