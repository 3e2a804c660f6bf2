//! A cache that the API server contradicts is relisted, at most once a minute.

mod evidence;
mod isolation;
mod model;
mod prover;
mod recent_proof;
mod scopes;
mod session;

use std::sync::Arc;
use std::time::Duration;

use model::object;
use tokio::time::{Instant, advance};

use super::plan::ListCosts;
use crate::api::{ListPage, ResourceVersion};
use crate::informer::{Freshness, FreshnessPolicy, ProofError, ProofRequest, relist_channel};
use crate::shutdown::Shutdown;
use crate::upstream::{FreshnessProbe, Scope};
use crate::{cache, shutdown, upstream};

impl<P: FreshnessProbe> Freshness<P> {
    fn with_list_costs(mut self, costs: ListCosts) -> Self {
        let inner = Arc::get_mut(&mut self.inner).expect("not shared yet");
        inner.prover.list_costs = costs;
        self
    }
}

/// An API server that has one object at version 5; the cache has none at this version.
struct ContradictingProbe;

impl FreshnessProbe for ContradictingProbe {
    async fn barrier(&self) -> Result<ResourceVersion, upstream::Error> {
        Ok(ResourceVersion(5))
    }

    async fn verification_list(&self, _: &Scope) -> Result<ListPage, upstream::Error> {
        Ok(ListPage {
            resource_version: ResourceVersion(5),
            continue_token: None,
            items: vec![object("a/x", &("u1".to_owned(), 4, "web"))],
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_cache_is_relisted_but_not_for_each_reader() {
    let (mut writer, reader) = cache::cache(cache::Config::default());
    let empty = writer.relist();
    writer.replace(empty, ResourceVersion(5));
    let (relist, mut relists) = relist_channel();
    let shutdown = Shutdown::new(shutdown::Config::default());
    let freshness = Freshness::new(
        ContradictingProbe,
        reader,
        relist,
        FreshnessPolicy::Strict,
        shutdown,
    );
    let mut requested = async |wait: u64| {
        advance(Duration::from_secs(wait)).await;
        let request = ProofRequest {
            selection: Arc::default(),
            scope: Scope::default(),
        };
        let proof = freshness
            .prove(request, Instant::now(), Duration::ZERO)
            .await;
        assert!(matches!(proof, Err(ProofError::CacheDiffers)), "{proof:?}");
        let requested = relists.is_requested();
        relists.acknowledge();
        requested
    };
    assert!(requested(0).await);
    assert!(!requested(1).await);
    assert!(!requested(58).await);
    assert!(requested(2).await);
}
