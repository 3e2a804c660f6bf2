//! Hostile clients, and an honest client-go client beside them.
//!
//! Each attack runs against one kubefan. A second kubefan, the twin, shares the API server and is
//! not attacked. The program `informers probe` runs against both, so that the load of the machine
//! affects both alike. Run it with a release build on a machine that is otherwise idle:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/release/kubefan \
//!     cargo test --test it abuse -- --ignored --nocapture --test-threads=1
//! ```
//!
//! `KUBEFAN_SCALE` is the part of the full numbers of connections and streams, 1 by default.
//! `KUBEFAN_ATTACKS` is a part of the names of the attacks to run, all by default.

mod attacker;
mod attacks;
mod relist;
mod scene;

use relist::ChangedUnseen;
use scene::{Connections, Scene};

/// The memory limit of the attacked kubefan.
const MEMORY_LIMIT: &str = "256Mi";
const MEMORY_LIMIT_BYTES: u64 = 256 << 20;

/// Runs the attacks in turn, and checks what they did.
macro_rules! attacks {
    ($scene:ident, $($name:literal => $attack:path,)*) => {{
        let mut problems = Vec::new();
        $(if scene::is_chosen($name) {
            problems.extend($scene.run($name, $attack).await.problems(MEMORY_LIMIT_BYTES));
        })*
        assert!(problems.is_empty(), "{problems:#?}");
    }};
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and needs a release build"]
async fn hostile_clients_harm_only_themselves() {
    let mut scene = Scene::start(&["--memory-limit", MEMORY_LIMIT], Connections::Plain).await;
    attacks!(scene,
        "no attack" => attacks::none,
        "LISTs, window 0" => attacks::closed_window_lists,
        "watches that no index finds" => attacks::unindexed_watches,
        "half prefaces" => attacks::half_prefaces,
        "resets of open streams" => attacks::resets,
        "a byte a minute" => attacks::slow_readers,
        "node watches that resume" => attacks::resumed_node_watches,
        "full header blocks" => attacks::full_header_blocks,
        "garbage tokens" => attacks::garbage_tokens,
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and needs a release build"]
async fn half_open_handshakes_harm_no_other_client() {
    let mut scene = Scene::start(&["--memory-limit", MEMORY_LIMIT], Connections::Tls).await;
    attacks!(scene,
        "no attack, TLS" => attacks::none,
        "half-open TLS handshakes" => attacks::half_open_handshakes,
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and needs a release build"]
async fn a_relist_under_many_streams_harms_no_other_client() {
    let flags = ["--memory-limit", MEMORY_LIMIT];
    let mut scene = Scene::start(&flags, Connections::FaultProxies).await;
    let changed = ChangedUnseen::new(&scene).await;
    let relist = async |scene: &Scene| changed.relist(scene).await;
    let row = scene.run("a relist of 100,000 changes", relist).await;
    let problems = row.problems(MEMORY_LIMIT_BYTES);
    assert!(problems.is_empty(), "{problems:#?}");
}
