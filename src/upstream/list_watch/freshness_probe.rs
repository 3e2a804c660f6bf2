//! What the API server can be asked to learn how fresh a cache is.

use std::future::Future;

use crate::api::ListPage;
use crate::api::ResourceVersion;

use crate::upstream::Error;

/// The part of a collection that a read is about, in the API server's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Only this namespace; `None` for all that the asker sees.
    pub namespace: Option<String>,
    /// `labelSelector`; empty for all.
    pub label_selector: String,
    /// `fieldSelector`; empty for all.
    pub field_selector: String,
}

/// Consistent questions about one resource: each is answered with a state that is at least as new
/// as the moment it was sent (KEP-2340).
pub trait FreshnessProbe: Send + Sync + 'static {
    /// A barrier: the resource version that the most recent state has at the least.
    fn barrier(&self) -> impl Future<Output = Result<ResourceVersion, Error>> + Send;

    /// Who is in `scope`, at which version each; bodies are empty. All in one page.
    fn verification_list(
        &self,
        scope: &Scope,
    ) -> impl Future<Output = Result<ListPage, Error>> + Send;
}
