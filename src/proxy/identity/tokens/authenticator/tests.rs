use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubefan_core::shutdown;
use kubefan_core::telemetry::Registry;
use kubefan_core::upstream::Client;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::duplex;
use tokio::time::advance;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const SOURCE: [u8; 4] = [192, 0, 2, 1];
const ACCOUNT: &str = "uid-of-account";

/// What the API server answers to all questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Good,
    Wrong,
    Nothing,
}

struct Scene {
    authenticator: Arc<Authenticator>,
    deleted: Arc<DeletedObjects>,
    says: Arc<Mutex<Says>>,
}

fn review(says: Says) -> Response<Full<Bytes>> {
    let user = json!({"username": "system:serviceaccount:n:a", "uid": ACCOUNT});
    let (status, body) = match says {
        Says::Good => (
            StatusCode::CREATED,
            json!({"status": {"authenticated": true, "user": user}}),
        ),
        Says::Wrong => (
            StatusCode::CREATED,
            json!({"status": {"authenticated": false}}),
        ),
        Says::Nothing => (StatusCode::SERVICE_UNAVAILABLE, json!({})),
    };
    let answer = Response::builder().status(status);
    let answer = answer.header("content-type", "application/json");
    let answer = answer.body(Full::from(body.to_string()));
    answer.expect("a response")
}

impl Scene {
    fn new(stale: Duration) -> Self {
        let says = Arc::new(Mutex::new(Says::Good));
        let answers = Arc::clone(&says);
        let dial = move || {
            let (near, far) = duplex(64 << 10);
            let answers = Arc::clone(&answers);
            let answer = service_fn(move |_: Request<Incoming>| {
                let answer = review(*answers.lock());
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(far), answer));
            Ok(near)
        };
        let client = Client::in_memory(&(Arc::new(dial) as _));
        let metrics = Metrics::new(&Registry::new());
        let config = Config {
            mode: Mode::Delegated,
            stale,
            ..Config::default()
        };
        let deleted = Arc::new(DeletedObjects::of_answers(stale.max(config.token_ttl)));
        let authenticator = Authenticator::new(
            Arc::new(Reviewer::new(client, metrics.reviews.clone())),
            &config,
            metrics,
            Arc::clone(&deleted),
            Shutdown::new(shutdown::Config::default()),
        );
        Self {
            authenticator: Arc::new(authenticator),
            deleted,
            says,
        }
    }

    async fn owner(&self, secret: &str) -> Owner {
        let token = Token::new(secret);
        self.authenticator
            .owner(&token, Source::of(SOURCE.into()))
            .await
    }

    fn says(&self, says: Says) {
        *self.says.lock() = says;
    }

    /// Uses up what the address may fail.
    async fn exhaust(&self) {
        for number in 0..1_000 {
            let wrong = self.owner(&format!("wrong-{number}")).await;
            if matches!(wrong, Owner::Busy) {
                return;
            }
        }
        panic!("the address is not limited");
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_of_a_deleted_account_never_counts_again() {
    for stale in [Duration::ZERO, 600 * SECOND] {
        let scene = Scene::new(stale);
        assert!(matches!(scene.owner("token").await, Owner::User(_)));
        scene.deleted.add(ACCOUNT, Instant::now());
        // The API server may remember the token itself.
        assert!(matches!(scene.owner("token").await, Owner::User(_)));
        advance(40 * SECOND).await;
        // The answers from before and shortly after the deletion would be valid for 20 s more.
        scene.says(Says::Nothing);
        let found = scene.owner("token").await;
        assert!(matches!(found, Owner::NoAnswer), "{found:?}");
        scene.says(Says::Wrong);
        let found = scene.owner("token").await;
        assert!(matches!(found, Owner::Refused { .. }), "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_was_good_for_ten_minutes_after_its_last_good_answer() {
    for (age, was_good) in [(650, true), (670, false)] {
        let scene = Scene::new(Duration::ZERO);
        // The token is good for 60 s.
        assert!(matches!(scene.owner("token").await, Owner::User(_)));
        advance(age * SECOND).await;
        scene.says(Says::Wrong);
        scene.exhaust().await;
        // The question of a token that was good is asked although its address has failed.
        let found = scene.owner("token").await;
        assert_eq!(
            matches!(found, Owner::Refused { .. }),
            was_good,
            "{found:?}"
        );
        assert_eq!(matches!(found, Owner::Busy), !was_good, "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_tokens_do_not_displace_good_ones() {
    let scene = Scene::new(Duration::ZERO);
    let good = (0..1_000).map(|number| format!("good-{number}"));
    let good: Vec<_> = good.collect();
    for token in &good {
        assert!(matches!(scene.owner(token).await, Owner::User(_)));
    }
    // The tokens are not used for a while.
    advance(300 * SECOND).await;
    for number in 0..2 * TOKENS {
        let digest = scene.authenticator.digest(&Token::new(&number.to_string()));
        let owner = Owner::Refused { good_until: None };
        let owners = &scene.authenticator.owners;
        owners.learn(&digest, owner, Instant::now(), REFUSED_FOR);
    }
    let was_good = |token: &&String| {
        let digest = scene.authenticator.digest(&Token::new(token));
        scene.authenticator.good_until(&digest).is_some()
    };
    assert_eq!(good.iter().filter(was_good).count(), good.len());
}
