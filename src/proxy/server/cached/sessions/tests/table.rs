//! Which requests are of one session, and what becomes of sessions that are pushed out.

use std::time::Duration;

use kubefan_core::api::ResourceVersion;
use tokio::time::Instant;

use super::kubefan::{requester, resource, user_key};
use crate::server::cached::sessions::session::ScopeHash;
use crate::server::cached::sessions::table::{Key, MAX_REQUEST_TIME, Requester, SessionTable};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_session_is_of_one_user_and_one_stored_resource() {
    let (maps, secrets) = (("", "v1", "configmaps"), ("", "v1", "secrets"));
    let trusted = Requester::User(None);
    for (marked_by, marked, user, read, is_one) in [
        (requester(1), maps, user_key(1), maps, true),
        (requester(1), maps, user_key(2), maps, false),
        (requester(1), maps, user_key(1), secrets, false),
        (trusted, maps, None, maps, true),
        (trusted, maps, user_key(1), maps, false),
        // The versions of an API, and both groups of events, are of the same objects.
        (
            requester(1),
            ("autoscaling", "v1", "horizontalpodautoscalers"),
            user_key(1),
            ("autoscaling", "v2", "horizontalpodautoscalers"),
            true,
        ),
        (
            requester(1),
            ("events.k8s.io", "v1", "events"),
            user_key(1),
            ("", "v1", "events"),
            true,
        ),
        (
            requester(1),
            ("", "v1", "pods"),
            user_key(1),
            ("metrics.k8s.io", "v1beta1", "pods"),
            false,
        ),
        // A caller that is not identified may be any user.
        (Requester::Unidentified, maps, user_key(1), maps, true),
        (Requester::Unidentified, maps, None, maps, true),
        (Requester::Unidentified, maps, user_key(1), secrets, false),
    ] {
        let case = format!("{marked_by:?} {marked:?}, read {read:?} by {user:?}");
        let [marked, read] =
            [marked, read].map(|(group, version, plural)| resource(group, version, plural));
        let (mut table, key, began) =
            (SessionTable::new(100), Key::of(user, &read), Instant::now());
        let proven_since = |table: &mut SessionTable, seconds: u32| {
            let claim = table.claim(&key, began + seconds * SECOND);
            assert_eq!(claim.version_in(ScopeHash::WHOLE), None, "{case}");
            claim.proven_since(ScopeHash::WHOLE)
        };
        assert_eq!(proven_since(&mut table, 0), began, "{case}");
        table.mark(marked_by, &marked, began + SECOND);
        let expected = if is_one { began + SECOND } else { began };
        assert_eq!(proven_since(&mut table, 2), expected, "{case}");
        table.lose_write(marked_by, &marked, began + 3 * SECOND);
        // Lost writes of unidentified callers are not noted.
        let is_noted = is_one && !matches!(marked_by, Requester::Unidentified);
        let expected = if is_noted {
            began + 4 * SECOND
        } else {
            expected
        };
        assert_eq!(proven_since(&mut table, 4), expected, "{case}");
    }
}

#[test]
fn a_session_that_was_pushed_out_begins_again_in_doubt() {
    let (maps, began) = (resource("", "v1", "configmaps"), Instant::now());
    let (mut table, key) = (SessionTable::new(4), Key::of(user_key(0), &maps));
    let version = ResourceVersion(5);
    table.see_object(requester(0), &maps, version, began);
    let seen = table.claim(&key, began).version_in(ScopeHash::WHOLE);
    assert_eq!(seen.map(|seen| seen.version), Some(version));
    // Some of the sessions after it push it out, but not the first ones.
    table.mark(requester(1), &maps, began);
    assert!(
        table
            .claim(&key, began)
            .version_in(ScopeHash::WHOLE)
            .is_some()
    );
    let pushed_out_at = began + SECOND;
    for other in 2..6 {
        table.mark(requester(other), &maps, pushed_out_at);
    }
    assert!(
        table
            .take_garbage()
            .is_some_and(|old| old.contains_key(&key))
    );
    let again = pushed_out_at + SECOND;
    let doubted_until = pushed_out_at + MAX_REQUEST_TIME;
    for (asked_at, expected) in [
        (again, again),
        (doubted_until - SECOND, doubted_until - SECOND),
        (doubted_until + SECOND, doubted_until),
    ] {
        let claim = table.claim(&key, asked_at);
        assert_eq!(claim.version_in(ScopeHash::WHOLE), None);
        assert_eq!(claim.proven_since(ScopeHash::WHOLE), expected);
    }
    assert!(table.len() <= 4);
}
