//! Settings of a shared informer.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::Selection;
use kubefan_core::informer::{Hooks, StartError};

use super::DecodeError;

/// Settings of a [`SharedInformer`](super::SharedInformer).
#[derive(Clone)]
pub struct Config {
    /// The objects that the informer shows. Default is all. A [`Factory`](super::Factory) lists and
    /// watches only these, unless it has a cache that contains them.
    pub selection: Selection,
    /// How objects are stored. Default is [`Storage::Bytes`].
    pub storage: Storage,
    /// Functions that are called beside or instead of those of the [`Factory`](super::Factory)
    /// ([`informer::Config::hooks`](kubefan_core::informer::Config::hooks)). Default is none.
    ///
    /// A transform is called instead of the factory's. Other informers must not see its effect, so
    /// only informers with clones of these hooks share its cache. A failure handler is called
    /// beside the factory's, and has no effect on which informers share a cache. An informer that
    /// is running already uses the failure handler of its first user. An informer of
    /// [`SharedInformer::new`](super::SharedInformer::new) calls no hooks, because its cache is
    /// made elsewhere.
    pub hooks: Hooks,
    /// Called for each object that is not of the informer's type. It must not read the informer.
    /// Default logs a warning.
    ///
    /// With [`Storage::Decoded`] it is usually called once for each state of an object. It is
    /// called again for a handler that is far behind, and for each handler if only the final state
    /// of a deleted object cannot be decoded. With [`Storage::Bytes`] it is called whenever the
    /// object is to be decoded.
    pub on_decode_error: Arc<dyn Fn(&DecodeError) + Send + Sync>,
    /// Called when the API server refuses the informer, once for each reason until the informer is
    /// ready. A [`Factory`](super::Factory) tries again. Default logs a warning.
    pub on_start_error: Arc<dyn Fn(&StartError) + Send + Sync>,
}

/// How a shared informer stores its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Storage {
    /// As the API server's bytes. Each read and each handler decodes the object again. This takes
    /// the least memory.
    #[default]
    Bytes,
    /// As bytes, and as decoded objects that listers and handlers share. This takes the least time.
    Decoded,
}

impl Config {
    /// The shortest interval of a handler's resync, as in client-go.
    pub const LEAST_RESYNC: Duration = Duration::from_secs(1);
}

impl Default for Config {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            storage: Storage::default(),
            hooks: Hooks::default(),
            on_decode_error: Arc::new(|error| {
                let source = error as &(dyn std::error::Error + 'static);
                tracing::warn!(error = source, "an object is left out");
            }),
            on_start_error: Arc::new(|error| {
                let source = error as &(dyn std::error::Error + 'static);
                tracing::warn!(error = source, "an informer is not started");
            }),
        }
    }
}

debug_fields!(
    [] Config,
    |it| selection: it.selection, storage: it.storage, hooks: it.hooks
);
