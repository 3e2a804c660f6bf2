//! The requests to the API server that prove how fresh a cache is.

use std::fmt;
use std::future::Future;

use tokio::time::Instant;

use crate::api::{ListPage, ResourceVersion};
use crate::upstream::Error;

/// The part of a collection that a verification list covers, as the parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The namespace to list; `None` for all namespaces that the [`FreshnessProbe`] covers.
    pub namespace: Option<String>,
    /// The `labelSelector` parameter; empty to select all objects.
    pub label_selector: String,
    /// The `fieldSelector` parameter; empty to select all objects.
    pub field_selector: String,
}

impl fmt::Display for Scope {
    /// Prints the scope, such as `in NAMESPACE, labels app=web, fields spec.nodeName=n`. Prints
    /// nothing for all objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let parts = [
            ("in", namespace),
            ("labels", &self.label_selector),
            ("fields", &self.field_selector),
        ];
        let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
        for (index, (name, text)) in parts.enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{name} {text}")?;
        }
        Ok(())
    }
}

/// Consistent reads of one resource: the API server answers each read with a state that is at least
/// as new as the moment when the request was sent (KEP-2340). If the upstream is another kubefan,
/// an answer may be older. Then the read fails with [`Error::Unproven`].
pub trait FreshnessProbe: Send + Sync + 'static {
    /// Sends a barrier, which returns the API server's current resource version.
    fn barrier(&self) -> impl Future<Output = Result<ResourceVersion, Error>> + Send;

    /// Lists the objects in `scope` in one page: their metadata, but no bodies.
    fn verification_list(
        &self,
        scope: &Scope,
    ) -> impl Future<Output = Result<ListPage, Error>> + Send;

    /// Returns when an answer last came that may be older than its request, the answers to the
    /// reflector's lists included. A list that began before this moment proves nothing. Returns
    /// `None` if there was no such answer, as if the upstream is an API server.
    fn unproven_at(&self) -> Option<Instant> {
        None
    }
}
