//! Notices deleted ServiceAccounts and pods in the caches that kubefan has for its clients. The
//! tokens that were issued for the deleted objects are not good any more.

use std::sync::{Arc, Weak};
use std::time::Duration;

use kubefan_core::api::{EventType, Object, Selection};
use kubefan_core::cache::{Event, Reader, WatchFrom, WatchItem};
use kubefan_core::informer::{Informer, InformerSet};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use prometheus::IntGauge;
use tokio::time::{Instant, sleep};

use super::deleted_objects::DeletedObjects;
use crate::identity::open_watches::OpenWatches;

/// How often kubefan looks for new caches.
const SEARCH: Duration = Duration::from_secs(1);
/// The resources of the core group that tokens are issued for.
const RESOURCES: [&str; 2] = ["serviceaccounts", "pods"];

/// Follows the caches of ServiceAccounts and pods.
#[derive(Clone)]
pub(in crate::identity) struct Deletions {
    deleted: Arc<DeletedObjects>,
    open_watches: OpenWatches,
    /// The number of caches that are followed.
    followed: IntGauge,
}

impl Deletions {
    /// Follows the caches of `informers`. Adds each deleted object to `deleted`, and asks about the
    /// tokens that were issued for it, for `open_watches`.
    pub(in crate::identity) fn start(
        deleted: Arc<DeletedObjects>,
        open_watches: OpenWatches,
        informers: InformerSet,
        registry: &Registry,
        shutdown: &Shutdown,
    ) {
        let deletions = Self {
            deleted,
            open_watches,
            followed: registry.gauge(
                "kubefan_account_caches",
                "Caches of ServiceAccounts and pods in which deletions are noticed, so that their tokens are asked about at once.",
            ),
        };
        let tasks = shutdown.clone();
        shutdown.spawn_background(async move { deletions.run(&informers, &tasks).await });
    }

    /// Follows each cache once. Runs until the future is dropped.
    async fn run(self, informers: &InformerSet, shutdown: &Shutdown) {
        let mut followed: Vec<Weak<Informer>> = Vec::new();
        loop {
            followed.retain(|informer| informer.strong_count() > 0);
            for informer in informers.all() {
                let gvr = &informer.resource().gvr;
                let is_source = gvr.group.is_empty() && RESOURCES.contains(&gvr.resource.as_str());
                let is_this = |other: &Weak<Informer>| other.as_ptr() == Arc::as_ptr(&informer);
                let is_followed = followed.iter().any(is_this);
                if is_source && informer.reader().is_ready() && !is_followed {
                    followed.push(Arc::downgrade(&informer));
                    let deletions = self.clone();
                    let follow = async move { deletions.follow(informer.reader()).await };
                    shutdown.spawn_background(follow);
                }
            }
            sleep(SEARCH).await;
        }
    }

    /// Follows the deletions in a cache until the cache is closed. Includes the deletions since the
    /// cache's first list.
    async fn follow(&self, cache: &Reader) {
        let mut beginning = beginning(cache);
        while cache.ready().await {
            let start = beginning.take();
            let everything = Arc::new(Selection::default());
            let Ok(changes) = cache.watch(start.unwrap_or(WatchFrom::Tip), everything) else {
                continue;
            };
            // The cache can still become idle and be dropped.
            let mut changes = changes.uncounted();
            self.followed.inc();
            // This comes after the start of the watch, so that no deletion is missed in between.
            if start.is_none() {
                self.unknown();
            }
            while let Some(item) = changes.next().await {
                if let WatchItem::Change { event, .. } = item {
                    self.changed(&event);
                }
            }
            self.followed.dec();
        }
    }

    fn changed(&self, event: &Event) {
        let is_deleted = event.event_type == EventType::Deleted;
        let deleted = is_deleted.then_some(&event.object);
        let is_other = |previous: &&Arc<Object>| previous.uid() != event.object.uid();
        // An object with a new UID has replaced an older object.
        let replaced = event.previous.as_ref().filter(is_other);
        for object in deleted.into_iter().chain(replaced) {
            let (uid, now) = (object.uid(), Instant::now());
            self.deleted.add(uid, now);
            self.open_watches.deleted(uid, now);
        }
    }

    /// Asks about all tokens that were issued for objects, because objects may have been deleted
    /// unnoticed: the cache began anew, or dropped events that were not read yet.
    fn unknown(&self) {
        tracing::debug!("deleted accounts or pods may have been missed, so all tokens are judged");
        let now = Instant::now();
        self.deleted.add_unknown(now);
        self.open_watches.unknown_deleted(now);
    }
}

/// Returns the start of a watch of all changes since the first list of `cache`; `None` if the cache
/// does not have all of these changes.
fn beginning(cache: &Reader) -> Option<WatchFrom> {
    let stats = cache.stats();
    let has_all = stats.epochs == 0 && stats.events == stats.log_events as u64;
    stats.log_start.filter(|_| has_all).map(WatchFrom::After)
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::{ObjectKey, ObjectValues, ResourceVersion};
    use kubefan_core::cache::{EpochCause, Writer};
    use kubefan_core::{cache, shutdown};
    use parking_lot::Mutex;
    use tokio::time::advance;

    use super::*;
    use crate::identity::asking::reviews::{Judgement, TokenOwner};
    use crate::identity::callers::caller::{Credential, KnownUser};
    use crate::identity::open_watches::{Asking, OpenWatch, Recent, Reviews};
    use crate::identity::tokens::token::{Digester, Token};
    use crate::identity::{Attributes, Config, KnownCaller, User};

    /// Accepts all, and records the tokens that it is asked about.
    #[derive(Clone, Default)]
    struct Asked(Arc<Mutex<Vec<String>>>);

    impl Reviews for Asked {
        fn judge(&self, _: &Arc<KnownCaller>, _: &Arc<Attributes>) -> Asking<Judgement> {
            Box::pin(async { Judgement::Allowed })
        }

        fn covers_names(&self, _: &KnownCaller) -> bool {
            false
        }

        fn confirm_names(&self, _: &Arc<KnownCaller>) -> Asking<Option<bool>> {
            Box::pin(async { Some(false) })
        }

        fn check(&self, token: &Token) -> Asking<TokenOwner<Arc<KnownUser>>> {
            self.0.lock().push(token.secret().to_owned());
            Box::pin(async { TokenOwner::MayNotAsk })
        }
    }

    /// The number of events that a cache retains.
    const RETAINED: usize = 8;

    struct Scene {
        writer: Writer,
        deleted: Arc<DeletedObjects>,
        asked: Asked,
        _watches: Vec<OpenWatch>,
    }

    fn user(name: &str, uid: &str) -> User {
        User {
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..User::default()
        }
    }

    fn object(uid: &str, version: u64) -> Object {
        let values = ObjectValues {
            uid: uid.into(),
            ..ObjectValues::default()
        };
        let key = ObjectKey::new(Some("n"), "account");
        let body = format!("{uid}@{version}").into();
        Object::new(key, ResourceVersion(version), &values, body)
    }

    impl Scene {
        /// Creates a cache that begins with one account, with the UID `a`, and writes to it with
        /// `write` before the cache is followed. The tokens of `a` and `b`, and one token that was
        /// issued for no object, have open watches.
        async fn after(write: impl FnOnce(&mut Writer)) -> Self {
            let (mut writer, reader) = cache::cache(cache::Config {
                retention_age: Duration::ZERO,
                retention_events: RETAINED,
                ..cache::Config::default()
            });
            let mut list = writer.relist();
            list.add(object("a", 5));
            writer.replace(list, ResourceVersion(10));
            write(&mut writer);
            let (shutdown, registry) =
                (Shutdown::new(shutdown::Config::default()), Registry::new());
            let asked = Asked::default();
            let deleted = Arc::new(DeletedObjects::of_answers(Duration::ZERO));
            let recent = Recent {
                roles: Arc::default(),
                deleted: Arc::clone(&deleted),
            };
            let config = Config::default();
            let watches = OpenWatches::start(&config, asked.clone(), recent, &registry, &shutdown);
            let digester = Digester::new();
            let open = |uid: &str, token: &str| {
                let caller = KnownCaller {
                    user: Arc::new(KnownUser::new(user("u", uid), &digester, &[])),
                    credential: Credential::Token(Token::new(token)),
                    is_stale: false,
                };
                let digest = digester.digest(token.as_bytes());
                let attributes = Attributes::default();
                watches.open(&Arc::new(caller), Some(digest), Some(attributes), None)
            };
            let open = [open("a", "of-a"), open("b", "of-b"), open("", "free")];
            let deletions = Deletions {
                deleted: Arc::clone(&deleted),
                open_watches: watches.clone(),
                followed: registry.gauge("followed", "followed"),
            };
            let followed = deletions.followed.clone();
            shutdown.spawn_background(async move { deletions.follow(&reader).await });
            while followed.get() == 0 {
                tokio::task::yield_now().await;
            }
            Self {
                writer,
                deleted,
                asked,
                _watches: open.into(),
            }
        }

        /// Returns the tokens that are asked about at once, and the UIDs without a remembered owner
        /// that counts.
        async fn noticed(&self) -> (Vec<String>, Vec<&'static str>) {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let mut asked = std::mem::take(&mut *self.asked.0.lock());
            asked.sort();
            let now = Instant::now();
            let is_outdated =
                |uid: &&str| self.deleted.earliest_owner(&user("u", uid), now).is_some();
            (
                asked,
                ["a", "b", ""].into_iter().filter(is_outdated).collect(),
            )
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokens_of_a_deleted_or_replaced_account_are_asked_about() {
        let mut scene = Scene::after(|_| ()).await;
        assert_eq!(scene.noticed().await, (vec![], vec![]));
        let replaced = scene
            .writer
            .apply(EventType::Modified, object("b", 11), None);
        replaced.expect("a later version");
        assert_eq!(scene.noticed().await, (vec!["of-a".to_owned()], vec!["a"]));
        advance(Duration::from_millis(500)).await;
        let deleted = scene
            .writer
            .apply(EventType::Deleted, object("b", 12), None);
        deleted.expect("a later version");
        let (asked, outdated) = scene.noticed().await;
        assert!(asked.contains(&"of-b".to_owned()), "{asked:?}");
        assert_eq!(outdated, ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_deleted_before_the_cache_was_found_is_noticed() {
        let mut scene = Scene::after(|writer| {
            let deleted = writer.apply(EventType::Deleted, object("a", 11), None);
            deleted.expect("a later version");
        })
        .await;
        assert_eq!(scene.noticed().await, (vec!["of-a".to_owned()], vec!["a"]));
        let list = scene.writer.relist();
        scene.writer.replace(list, ResourceVersion(12));
        assert_eq!(scene.noticed().await, (vec![], vec!["a"]));
    }

    #[tokio::test(start_paused = true)]
    async fn all_tokens_are_asked_about_if_the_log_of_a_cache_that_was_found_is_not_complete() {
        let restart = |writer: &mut Writer| {
            writer.new_epoch(EpochCause::WentBack);
            let list = writer.relist();
            writer.replace(list, ResourceVersion(3));
        };
        let overflow = |writer: &mut Writer| {
            for version in 11..=11 + RETAINED as u64 {
                let modified = writer.apply(EventType::Modified, object("a", version), None);
                modified.expect("a later version");
            }
        };
        for write in [&restart as &dyn Fn(&mut Writer), &overflow] {
            let scene = Scene::after(write).await;
            let both = vec!["of-a".to_owned(), "of-b".to_owned()];
            assert_eq!(scene.noticed().await, (both, vec!["a", "b"]));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_new_epoch_all_tokens_of_objects_are_asked_about() {
        let mut scene = Scene::after(|_| ()).await;
        scene.writer.new_epoch(EpochCause::WentBack);
        // No change is noticed while there is no new list.
        assert_eq!(scene.noticed().await, (vec![], vec![]));
        let list = scene.writer.relist();
        scene.writer.replace(list, ResourceVersion(3));
        let both = vec!["of-a".to_owned(), "of-b".to_owned()];
        assert_eq!(scene.noticed().await, (both, vec!["a", "b"]));
    }
}
