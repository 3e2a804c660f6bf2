//! Decisions of a scripted API server in memory, on paused time.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubefan_core::shutdown;
use kubefan_core::telemetry::Registry;
use kubefan_core::upstream::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::duplex;
use tokio::time::advance;

use super::*;
use crate::identity::Metrics;
use crate::identity::tokens::deleted_objects::DeletedObjects;

/// Which attributes of a review are allowed.
type Rules = fn(&Value) -> bool;

struct Scene {
    authorizer: Arc<Authorizer>,
    /// The attributes of all reviews.
    asked: Arc<Mutex<Vec<Value>>>,
}

async fn review(
    request: Request<Incoming>,
    rules: Rules,
    asked: Arc<Mutex<Vec<Value>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.expect("a whole body");
    let mut review: Value = serde_json::from_slice(&body.to_bytes()).expect("a review");
    let attributes = review["spec"]["resourceAttributes"].take();
    let allowed = rules(&attributes);
    asked.lock().push(attributes);
    let body = json!({"status": {"allowed": allowed}}).to_string();
    let answer = Response::builder()
        .status(StatusCode::CREATED)
        .header("content-type", "application/json")
        .body(Full::from(body));
    Ok(answer.expect("a response"))
}

impl Scene {
    fn new(config: Config, rules: Rules) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let dial = move || {
            let (near, far) = duplex(64 << 10);
            let seen = Arc::clone(&seen);
            let answer = service_fn(move |request| review(request, rules, Arc::clone(&seen)));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(far), answer));
            Ok(near)
        };
        let client = Client::in_memory(&(Arc::new(dial) as _));
        let metrics = Metrics::new(&Registry::new());
        let access_queue = metrics.access_queue.clone();
        let shutdown = Shutdown::new(shutdown::Config::default());
        let config = Config {
            mode: Mode::Delegated,
            ..config
        };
        let reviewer = Arc::new(Reviewer::new(client, metrics.reviews.clone()));
        let deleted = Arc::new(DeletedObjects::of_answers(Duration::ZERO));
        let of_tokens = Arc::clone(&reviewer);
        let authenticator =
            Authenticator::new(of_tokens, &config, metrics, deleted, shutdown.clone());
        let authorizer = Authorizer::new(
            reviewer,
            Arc::new(authenticator),
            &config,
            access_queue,
            Arc::default(),
            shutdown,
        );
        Self {
            authorizer: Arc::new(authorizer),
            asked,
        }
    }

    /// The number of questions since the last call.
    fn asked(&self) -> usize {
        std::mem::take(&mut *self.asked.lock()).len()
    }
}

fn read(verb: &str, name: &str) -> Attributes {
    Attributes {
        verb: verb.to_owned(),
        resource: "pods".to_owned(),
        namespace: "n".to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

#[tokio::test(start_paused = true)]
async fn questions_with_long_names_or_selectors_are_not_remembered() {
    let scene = Scene::new(Config::default(), |_| false);
    let caller = Arc::new(KnownCaller::for_tests(1));
    let authorizer = &scene.authorizer;
    for number in 0..250 {
        let name = format!("{number}-{}", "x".repeat(60_000));
        let named = read("get", &name);
        let in_namespace = Attributes {
            namespace: name.clone(),
            ..read("list", "")
        };
        for long in [named, in_namespace] {
            let verdict = authorizer.may_read(&caller, &long).await;
            assert_eq!(verdict, Verdict::NotAllowed);
            authorizer.learn(&caller, &long, Instant::now());
            let judgement = authorizer.judge_again(&caller, Arc::new(long)).await;
            assert_eq!(judgement, Judgement::Denied);
        }
        // The API server is asked about these, but each is asked about anew.
        let some: Vec<_> = (0..80)
            .map(|key| format!("key-{key}-of-{number}"))
            .collect();
        let selective = read("list", "").with_selectors(None, Some(&some.join(",")));
        let verdict = authorizer.may_read(&caller, &selective).await;
        assert_eq!(verdict, Verdict::NotAllowed);
        // Very many conditions are no part of a question.
        let many: Vec<_> = (0..5_000).map(|key| format!("k{key}-{number}")).collect();
        let selective = read("list", "").with_selectors(None, Some(&many.join(",")));
        let verdict = authorizer.may_read(&caller, &selective).await;
        assert_eq!(verdict, Verdict::NotAllowed);
    }
    // The entry is that of the general question.
    assert_eq!(authorizer.decisions.len(), 1);
    // Two are asked again although they are not remembered, and one is asked with its selector.
    assert!(scene.asked() >= 750);
}

#[tokio::test(start_paused = true)]
async fn a_yes_without_a_name_covers_names_only_if_the_operator_says_so() {
    let is_unnamed = |attributes: &Value| attributes["name"] == "";
    for names_covered in [false, true] {
        let config = Config {
            names_covered,
            stale: Duration::from_secs(60),
            ..Config::default()
        };
        let scene = Scene::new(config, is_unnamed);
        let caller = Arc::new(KnownCaller::for_tests(1));
        let authorizer = &scene.authorizer;
        assert_eq!(
            authorizer.may_read(&caller, &read("get", "")).await,
            Verdict::Allowed
        );
        assert_eq!(scene.asked(), 1);
        let named = read("get", "a");
        let known = authorizer.known(&caller, &named);
        assert_eq!(known, names_covered.then_some(Verdict::Allowed));
        assert_eq!(authorizer.was_allowed(&caller, &named), names_covered);
        let of_all_names = authorizer.may_read_all_names(&caller, &named);
        assert_eq!(of_all_names.await, names_covered);
        for name in 0..100 {
            let one = read("get", &name.to_string());
            let verdict = authorizer.may_read(&caller, &one);
            let expected = if names_covered {
                Verdict::Allowed
            } else {
                Verdict::NotAllowed
            };
            assert_eq!(verdict.await, expected);
        }
        assert_eq!(scene.asked(), if names_covered { 0 } else { 100 });
        // Another verb or namespace is another right.
        let elsewhere = Attributes {
            namespace: "m".to_owned(),
            ..read("get", "a")
        };
        for other in [read("watch", "a"), elsewhere] {
            assert_eq!(authorizer.known(&caller, &other), None, "{other:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_no_without_a_name_says_nothing_about_names() {
    let config = Config {
        names_covered: true,
        ..Config::default()
    };
    let scene = Scene::new(config, |attributes| attributes["name"] == "mine");
    let caller = Arc::new(KnownCaller::for_tests(1));
    let authorizer = &scene.authorizer;
    let (mine, other) = (read("get", "mine"), read("get", "other"));
    assert!(!authorizer.may_read_all_names(&caller, &mine).await);
    assert_eq!(authorizer.known(&caller, &mine), None);
    assert_eq!(authorizer.may_read(&caller, &mine).await, Verdict::Allowed);
    assert_eq!(authorizer.known(&caller, &mine), Some(Verdict::Allowed));
    assert_eq!(
        authorizer.may_read(&caller, &other).await,
        Verdict::NotAllowed
    );
    // The question about all names was asked once.
    assert_eq!(scene.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_about_a_user_that_was_denied_too_often() {
    let scene = Scene::new(Config::default(), |attributes| attributes["name"] == "mine");
    let (greedy, other) = (KnownCaller::for_tests(1), KnownCaller::for_tests(2));
    let (greedy, other) = (Arc::new(greedy), Arc::new(other));
    let authorizer = &scene.authorizer;
    for number in 0..3_000 {
        let others = read("list", &format!("{number}"));
        let verdict = authorizer.may_read(&greedy, &others).await;
        assert_eq!(verdict, Verdict::NotAllowed);
    }
    // 1,000 at once, and 100 a second; no time has passed.
    assert_eq!(scene.asked(), 1_000);
    let mine = read("list", "mine");
    assert_eq!(
        authorizer.may_read(&greedy, &mine).await,
        Verdict::NotAllowed
    );
    assert_eq!(authorizer.may_read(&other, &mine).await, Verdict::Allowed);
    advance(Duration::from_secs(1)).await;
    assert_eq!(authorizer.may_read(&greedy, &mine).await, Verdict::Allowed);
}
