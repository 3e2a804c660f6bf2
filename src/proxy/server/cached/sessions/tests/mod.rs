//! A random model of sessions: no user misses a write of its own, or goes back behind what it has
//! seen through a kubefan.
//!
//! Users write, lose writes, get conflicts and forwarded answers, and are not identified at times.
//! Others write too, also through another kubefan, which knows nothing of these sessions. Caches of
//! both wire formats and one of some objects follow, list again, and are proven as a whole or in
//! part. Reads overlap. Sessions are forgotten. The API server is restored, and caches notice late.

mod kubefan;
mod server;
mod table;
mod world;

use world::{ALL, World};

#[test]
fn sessions_contain_what_their_users_have_seen() {
    for seed in 0..5_000 {
        let end = World::new(seed, None).run();
        assert_eq!(end, Ok(()), "seed {seed}");
    }
}

#[test]
fn the_model_of_sessions_notices_each_broken_rule() {
    for rule in ALL {
        let is_noticed = (0..20_000).any(|seed| World::new(seed, Some(rule)).run().is_err());
        assert!(is_noticed, "{rule:?}");
    }
}
