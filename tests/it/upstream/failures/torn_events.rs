//! kubefan's watch of Events ends inside a group of deletions at one version: until the rest comes,
//! no read shows a part of the group.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format, WatchReader};
use crate::support::events::{
    assert_existed, assert_same, changes_until, collections, create_event, delete_at_once,
    deleted_at, is_of, list, list_in_pages, names, number, watch_from, watch_list,
};
use crate::support::faulty::{next_change, open};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::scripted_proxy::{Change, RequestAction, ScriptedProxy};

const LIMIT: Duration = Duration::from_secs(60);
/// The number of Events that are deleted at one version.
const GROUP: usize = 4;

/// Where kubefan's watch of Events ends, and what waits then.
#[derive(Default)]
struct Cut {
    /// How many deletions may still pass before the end; `None` for no end.
    left: Option<usize>,
    /// Releases the request that precedes kubefan's next watch; `Some` since the end.
    held: Option<Arc<Notify>>,
}

/// Ends the watch as `cut` says, at a deletion in the namespace.
fn ending(cut: Arc<Mutex<Cut>>, namespace: String) -> Change {
    Box::new(move |line| {
        let text = String::from_utf8_lossy(&line);
        let is_deletion = text.starts_with(r#"{"type":"DELETED""#)
            && text.contains(&format!(r#""namespace":"{namespace}""#));
        let mut cut = cut.lock();
        match cut.left {
            Some(0) if is_deletion => {
                *cut = Cut {
                    left: None,
                    held: Some(Arc::default()),
                };
                return None;
            }
            Some(left) if is_deletion => cut.left = Some(left - 1),
            _ => {}
        }
        Some(vec![line])
    })
}

/// A kubefan that has received only the first deletions of a group.
struct Torn<'a> {
    direct: &'a Client,
    through: &'a Client,
    path: &'a str,
    /// The version of the deletions.
    version: u64,
    /// How many of them kubefan has received.
    received: usize,
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn no_read_shows_a_part_of_a_group_while_the_watch_is_cut_inside_it() {
    let server = shared();
    let namespace = server.namespace("torn").await;
    let [path, _] = collections(&namespace);
    let cut = Arc::new(Mutex::new(Cut::default()));
    let proxy = {
        let (cut, namespace) = (Arc::clone(&cut), namespace.clone());
        ScriptedProxy::start(server.client(), move |seen| {
            let held = cut.lock().held.clone();
            match held {
                _ if seen.path != "/api/v1/events" => RequestAction::Forward,
                _ if seen.is_watch() => {
                    RequestAction::ChangeFrames(ending(Arc::clone(&cut), namespace.clone()))
                }
                Some(held) if seen.query("limit") == "1" => RequestAction::Wait(held),
                _ => RequestAction::Forward,
            }
        })
        .await
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let kubefan = Kubefan::start_with(&config, &[]).await;
    let (direct, through) = (server.client(), kubefan.client());
    let mut stream = open(&through, &path, "0", Format::Json).await;
    for received in 0..GROUP {
        let last = format!("group-{}", GROUP - 1);
        for at in 0..GROUP {
            create_event(&direct, &namespace, &format!("group-{at}"), "x").await;
        }
        changes_until(&mut stream, &last).await;
        cut.lock().left = Some(received);
        let (version, count) = delete_at_once(server, &namespace, "group-").await;
        assert_eq!(count, GROUP);
        let held = eventually("the end of the watch", LIMIT, async || {
            cut.lock().held.clone().ok_or("it is open")
        })
        .await;
        let mut deleted = Vec::new();
        for _ in 0..received {
            deleted.push(next_change(&mut stream).await);
        }
        let torn = Torn {
            direct: &direct,
            through: &through,
            path: &path,
            version: number(&version),
            received,
        };
        torn.is_hidden().await;
        let before = watch_from(&through, &path, torn.version - 1, "", Format::Json).await;
        let after = watch_from(&through, &path, torn.version, "", Format::Json).await;
        cut.lock().held = None;
        held.notify_one();
        let closing = format!("closing-{received}");
        create_event(&direct, &namespace, &closing, "x").await;
        deleted.extend(changes_until(&mut stream, &closing).await);
        torn.is_complete(&deleted, before, after, &closing).await;
    }
}

impl Torn<'_> {
    /// Checks that reads show a state before the deletions.
    async fn is_hidden(&self) {
        let (state, _stream) = watch_list(self.through, self.path, Format::Json).await;
        let lists = [
            list(self.through, self.path, Format::Json).await,
            list_in_pages(self.through, self.path, Format::Json).await,
            state,
        ];
        for state in &lists {
            assert!(number(&state.resource_version) < self.version, "{state:?}");
            assert_existed(self.direct, self.path, state, Format::Json).await;
            let names = names(state);
            let grouped = names.iter().filter(|name| name.starts_with("group-"));
            // Without a deletion, the last creation is not shown either.
            let shown = GROUP - usize::from(self.received == 0);
            assert!(grouped.count() >= shown, "{names:?}");
        }
    }

    /// Checks that `deleted`, the changes of a watch that was open all the time, are the group and
    /// the Event `closing`; that a watch from the version `before` the group gets all of them, and
    /// a watch from its own version, opened `after` a part was received, the rest. Then reads show
    /// the state after the group.
    async fn is_complete(
        &self,
        deleted: &[Event],
        mut before: WatchReader,
        mut after: WatchReader,
        closing: &str,
    ) {
        assert_eq!(deleted.len(), GROUP + 1, "{deleted:?}");
        for (at, event) in deleted[..GROUP].iter().enumerate() {
            assert!(is_of(event, &format!("group-{at}")), "{event:?}");
        }
        assert_eq!(deleted_at(deleted, &self.version.to_string()), GROUP);
        let again = changes_until(&mut before, closing).await;
        assert_same(&again, deleted, "the watch from before the group");
        // A client with this version has received all of the group from the API server, or, from
        // kubefan, the part that kubefan has received.
        let rest = match self.received {
            0 => &deleted[GROUP..],
            received => &deleted[received..],
        };
        let got = changes_until(&mut after, closing).await;
        assert_same(&got, rest, "the watch from the version of the group");
        let state = list(self.through, self.path, Format::Json).await;
        assert!(number(&state.resource_version) >= self.version, "{state:?}");
        assert!(!names(&state).iter().any(|name| name.starts_with("group-")));
        assert_existed(self.direct, self.path, &state, Format::Json).await;
    }
}
