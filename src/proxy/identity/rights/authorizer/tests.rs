//! Decisions of a scripted API server in memory, on paused time.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

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
use crate::identity::callers::caller::KnownUser;
use crate::identity::rights::attributes::ANY_NAME;
use crate::identity::tokens::deleted_objects::DeletedObjects;
use crate::identity::{Metrics, User};

/// Which attributes of a review are allowed.
type Rules = fn(&Value) -> bool;

struct Scene {
    authorizer: Arc<Authorizer>,
    api_server: Arc<ApiServer>,
}

/// The scripted API server.
struct ApiServer {
    rules: Rules,
    /// The attributes of all reviews of access.
    asked: Mutex<Vec<Value>>,
    /// The answer to a review of rules: its code and its `status`.
    of_rules: Mutex<(u16, Value)>,
    /// The number of reviews of rules.
    rules_asked: AtomicUsize,
}

impl ApiServer {
    async fn review(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let body = request.into_body().collect().await.expect("a whole body");
        let mut review: Value = serde_json::from_slice(&body.to_bytes()).expect("a review");
        let (code, status) = if review["kind"] == "SelfSubjectRulesReview" {
            self.rules_asked.fetch_add(1, Ordering::Relaxed);
            self.of_rules.lock().clone()
        } else {
            let attributes = review["spec"]["resourceAttributes"].take();
            let allowed = (self.rules)(&attributes);
            self.asked.lock().push(attributes);
            (201, json!({"allowed": allowed}))
        };
        let body = match code {
            201 => json!({"status": status}),
            _ => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}),
        };
        let answer = Response::builder()
            .status(StatusCode::from_u16(code).expect("a code"))
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()));
        Ok(answer.expect("a response"))
    }
}

impl Scene {
    fn new(config: Config, rules: Rules) -> Self {
        let api_server = Arc::new(ApiServer {
            rules,
            asked: Mutex::default(),
            of_rules: Mutex::new((201, json!({"incomplete": true}))),
            rules_asked: AtomicUsize::new(0),
        });
        let answering = Arc::clone(&api_server);
        let dial = move || {
            let (near, far) = duplex(64 << 10);
            let answering = Arc::clone(&answering);
            let answer = service_fn(move |request| Arc::clone(&answering).review(request));
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
            api_server,
        }
    }

    /// The number of questions about access since the last call.
    fn asked(&self) -> usize {
        std::mem::take(&mut *self.api_server.asked.lock()).len()
    }

    /// The number of questions about rules since the last call.
    fn rules_asked(&self) -> usize {
        self.api_server.rules_asked.swap(0, Ordering::Relaxed)
    }

    /// Sets the answer to questions about rules.
    fn set_rules(&self, code: u16, status: Value) {
        *self.api_server.of_rules.lock() = (code, status);
    }

    /// Waits until the question about rules that is in flight has its answer, and asks it if the
    /// last answer is old.
    async fn confirmed(&self) -> Option<bool> {
        self.authorizer.names.confirmed(&User::default()).await
    }
}

/// A caller in the group of nodes.
fn node() -> Arc<KnownCaller> {
    let user = KnownUser {
        user: User {
            groups: vec![User::NODES.to_owned()],
            ..User::default()
        },
        ..KnownUser::unnamed(Digest::for_tests(2))
    };
    Arc::new(KnownCaller::new(Arc::new(user), Credential::None))
}

fn is_of_all_names(attributes: &Value) -> bool {
    ["", ANY_NAME]
        .map(Value::from)
        .contains(&attributes["name"])
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
async fn a_yes_for_all_names_covers_each_name_only_if_names_are_covered() {
    const LISTED: &str = r#"{"incomplete": false}"#;
    const WEBHOOK: &str = r#"{"incomplete": true, "evaluationError": "a webhook"}"#;
    let user = || Arc::new(KnownCaller::for_tests(1));
    for (said, caller, (code, rules), names_covered) in [
        (Some(true), user(), (201, WEBHOOK), true),
        (Some(false), user(), (201, LISTED), false),
        (None, user(), (201, LISTED), true),
        (None, user(), (201, WEBHOOK), false),
        (None, user(), (403, LISTED), false),
        (None, user(), (404, LISTED), false),
        (None, user(), (503, LISTED), false),
        (None, node(), (201, LISTED), false),
    ] {
        let config = Config {
            names_covered: said,
            stale: Duration::from_secs(60),
            ..Config::default()
        };
        let scene = Scene::new(config, is_of_all_names);
        scene.set_rules(code, serde_json::from_str(rules).expect("a status"));
        let authorizer = &scene.authorizer;
        scene.confirmed().await;
        assert_eq!(scene.rules_asked(), usize::from(said.is_none()));
        let all = read("get", ANY_NAME);
        assert_eq!(authorizer.may_read(&caller, &all).await, Verdict::Allowed);
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
        assert_eq!(scene.rules_asked(), 0);
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
async fn a_webhook_that_is_added_counts_within_the_time_of_a_decision() {
    let config = Config::default();
    let validity = config.allowed_ttl;
    let scene = Scene::new(config, is_of_all_names);
    scene.set_rules(201, json!({"incomplete": false}));
    let caller = Arc::new(KnownCaller::for_tests(1));
    let authorizer = &scene.authorizer;
    let named = read("get", "a");
    // The first read finds nothing, and asks. It does not wait.
    assert!(!authorizer.may_read_all_names(&caller, &named).await);
    assert_eq!(scene.confirmed().await, Some(true));
    for _ in 0..100 {
        assert!(authorizer.may_read_all_names(&caller, &named).await);
    }
    assert_eq!((scene.rules_asked(), scene.asked()), (1, 1));
    scene.set_rules(201, json!({"incomplete": true}));
    advance(validity / 2).await;
    // The last answer still counts while it is asked for again.
    assert_eq!(authorizer.known(&caller, &named), Some(Verdict::Allowed));
    assert_eq!(scene.confirmed().await, Some(false));
    assert_eq!(authorizer.known(&caller, &named), None);
    assert!(!authorizer.may_read_all_names(&caller, &named).await);
    assert_eq!(scene.rules_asked(), 1);
    // Other reads ask nothing.
    advance(100 * validity).await;
    authorizer.may_read(&caller, &read("list", "")).await;
    assert_eq!(scene.rules_asked(), 0);
    // An answer expires if no read asks for it again in time.
    scene.set_rules(201, json!({"incomplete": false}));
    assert_eq!(scene.confirmed().await, Some(true));
    advance(validity).await;
    assert_eq!(authorizer.known(&caller, &named), None);
    assert!(!authorizer.is_name_covered(&caller, &named));
}

#[tokio::test(start_paused = true)]
async fn in_an_outage_names_are_covered_as_long_as_older_decisions_count() {
    let config = Config {
        stale: Duration::from_secs(60),
        ..Config::default()
    };
    let validity = config.allowed_ttl;
    let scene = Scene::new(config, is_of_all_names);
    scene.set_rules(201, json!({"incomplete": false}));
    assert_eq!(scene.confirmed().await, Some(true));
    let (user, node) = (Arc::new(KnownCaller::for_tests(1)), node());
    let authorizer = &scene.authorizer;
    for caller in [&user, &node] {
        let all = read("get", ANY_NAME);
        assert_eq!(authorizer.may_read(caller, &all).await, Verdict::Allowed);
    }
    scene.set_rules(503, Value::Null);
    let named = read("get", "a");
    advance(validity / 2).await;
    let last = scene.confirmed().await;
    assert_eq!(last, Some(true), "the last answer has not expired");
    advance(validity / 2).await;
    assert_eq!(scene.confirmed().await, None, "it is not known");
    assert!(authorizer.was_allowed(&user, &named) && !authorizer.was_allowed(&node, &named));
    advance(Duration::from_secs(60) - validity).await;
    assert!(!authorizer.was_allowed(&user, &named));
    // A clear answer ends it at once.
    scene.set_rules(201, json!({"incomplete": false}));
    assert_eq!(scene.confirmed().await, Some(true));
    let since = Instant::now();
    authorizer.learn(&user, &read("get", ANY_NAME), since);
    advance(validity).await;
    assert!(authorizer.was_allowed(&user, &named));
    scene.set_rules(403, Value::Null);
    assert_eq!(scene.confirmed().await, Some(false));
    assert!(!authorizer.was_allowed(&user, &named));
}

/// Such a rule, perhaps of a template without a value, allows no object.
#[tokio::test(start_paused = true)]
async fn a_right_to_the_empty_name_covers_no_name() {
    let config = Config {
        names_covered: Some(true),
        ..Config::default()
    };
    let scene = Scene::new(config, |attributes| attributes["name"] == "");
    let caller = Arc::new(KnownCaller::for_tests(1));
    let authorizer = &scene.authorizer;
    for verb in ["get", "create"] {
        let named = read(verb, "a");
        assert!(!authorizer.may_read_all_names(&caller, &named).await);
        let verdict = authorizer.may_read(&caller, &named).await;
        assert_eq!(verdict, Verdict::NotAllowed, "{verb}");
    }
    // A list without a name is a list of all objects.
    let verdict = authorizer.may_read(&caller, &read("list", "a")).await;
    assert_eq!(verdict, Verdict::Allowed);
}

#[tokio::test(start_paused = true)]
async fn a_no_without_a_name_says_nothing_about_names() {
    let config = Config {
        names_covered: Some(true),
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
