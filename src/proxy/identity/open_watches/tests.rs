//! Open watches with a scripted API server, on paused time.

use std::collections::HashMap;
use std::future::poll_fn;
use std::time::UNIX_EPOCH;

use futures_util::FutureExt;
use kubefan_core::body::BodyGuard;
use kubefan_core::shutdown;
use tokio::time::{advance, sleep};

use super::*;
use crate::identity::User;
use crate::identity::certificates::proof::Proof;
use crate::identity::certificates::users::Expiry;
use crate::identity::open_watches::register::Concern;
use crate::identity::tokens::deleted_objects::DeletedObjects;
use crate::identity::tokens::token::Digester;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The answers of the scripted API server, and the questions that it was asked.
#[derive(Default)]
struct Script {
    /// The judgement for each user and resource; a right without an entry is allowed.
    rights: HashMap<(String, String), Judgement>,
    /// The answer to all questions with users' own credentials, whatever the rights are.
    with_token: Option<Judgement>,
    /// Whether a right to all names covers each name; `None` if there is no answer.
    names_covered: Option<bool>,
    /// The answer about each token; `MayNotAsk` for a token without an entry.
    tokens: HashMap<String, TokenOwner<Arc<KnownUser>>>,
    /// How long an answer takes.
    delay: Duration,
    /// The time and subject of each question.
    asked: Vec<(Instant, String)>,
}

#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

impl Reviews for Scripted {
    fn judge(&self, caller: &Arc<KnownCaller>, attributes: &Arc<Attributes>) -> Asking<Judgement> {
        let user = caller.user().name.clone();
        let mut subject = format!("{user} {}", attributes.resource);
        if attributes.has_selectors() {
            subject += " selected";
        }
        let mut script = self.0.lock();
        script.asked.push((Instant::now(), subject.clone()));
        let (_, resource) = subject.split_once(' ').expect("a user");
        let named = (user.clone(), format!("{resource} {}", attributes.name));
        let right = script.rights.get(&named);
        let right = right.or_else(|| script.rights.get(&(user, resource.to_owned())));
        let right = right.copied().unwrap_or(Judgement::Allowed);
        let judgement = match &caller.credential {
            Credential::Token(token) => match script.tokens.get(token.secret()) {
                Some(TokenOwner::Refused) => Judgement::Refused,
                _ => script.with_token.unwrap_or(right),
            },
            Credential::Certificate(_) | Credential::None => right,
        };
        let delay = script.delay;
        Box::pin(async move {
            sleep(delay).await;
            judgement
        })
    }

    fn covers_names(&self, _: &KnownCaller) -> bool {
        self.0.lock().names_covered == Some(true)
    }

    fn confirm_names(&self, _: &Arc<KnownCaller>) -> Asking<Option<bool>> {
        let covered = self.0.lock().names_covered;
        Box::pin(async move { covered })
    }

    fn check(&self, token: &Token) -> Asking<TokenOwner<Arc<KnownUser>>> {
        let mut script = self.0.lock();
        let secret = token.secret().to_owned();
        script.asked.push((Instant::now(), secret.clone()));
        let check = script.tokens.get(&secret).cloned();
        Box::pin(async move { check.unwrap_or(TokenOwner::MayNotAsk) })
    }
}

struct Scene {
    script: Scripted,
    watches: OpenWatches,
    recent: Recent,
    digester: Digester,
    start: Instant,
}

impl Scene {
    fn new() -> Self {
        Self::with_rate(50)
    }

    fn with_rate(rate: u32) -> Self {
        let script = Scripted::default();
        let config = Config {
            reauthorize: MINUTE,
            reauthenticate: 10 * MINUTE,
            max_reviews_per_second: NonZeroU32::new(rate).expect("not 0"),
            ..Config::default()
        };
        let shutdown = Shutdown::new(shutdown::Config::default());
        let recent = Recent {
            roles: Arc::default(),
            deleted: Arc::new(DeletedObjects::of_answers(Duration::ZERO)),
        };
        let of_watches = recent.clone();
        let (script_of, registry) = (script.clone(), Registry::new());
        let watches = OpenWatches::start(&config, script_of, of_watches, &registry, &shutdown);
        Self {
            script,
            watches,
            recent,
            digester: Digester::new(),
            start: Instant::now(),
        }
    }

    fn user(&self, name: &str) -> Arc<KnownUser> {
        Arc::new(KnownUser {
            user: User {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                ..User::default()
            },
            digest: self.digester.digest(name.as_bytes()),
            name: self.digester.digest(name.as_bytes()),
            // `n/a` is an account of the tenant `n`.
            tenant: self
                .digester
                .digest(name.split('/').next().unwrap_or(name).as_bytes()),
        })
    }

    /// Opens a watch of `resource` by the user `name`. The watch's token is `name` too.
    fn open(&self, name: &str, resource: &str) -> OpenWatch {
        self.open_with(name, name, resource, None)
    }

    fn open_with(
        &self,
        name: &str,
        token: &str,
        resource: &str,
        selector: Option<&str>,
    ) -> OpenWatch {
        let token = Token::new(token);
        let digest = self.digester.digest(token.secret().as_bytes());
        let caller = Arc::new(KnownCaller {
            user: self.user(name),
            credential: Credential::Token(token),
            is_stale: false,
        });
        let attributes = Attributes {
            verb: "watch".to_owned(),
            resource: resource.to_owned(),
            ..Attributes::default()
        };
        let attributes = attributes.with_selectors(None, selector);
        self.watches
            .open(&caller, Some(digest), Some(attributes), None)
    }

    /// Opens a watch of one pod by the user `u`.
    fn open_pod(&self, name: &str) -> OpenWatch {
        let attributes = Attributes {
            verb: "watch".to_owned(),
            resource: "pods".to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        let selector = format!("metadata.name={name}");
        let attributes = attributes.with_selectors(Some(&selector), None);
        let caller = Arc::new(KnownCaller {
            user: self.user("u"),
            credential: Credential::None,
            is_stale: false,
        });
        self.watches.open(&caller, None, Some(attributes), None)
    }

    fn set_names_covered(&self, names_covered: Option<bool>) {
        self.script.0.lock().names_covered = names_covered;
    }

    fn set(&self, user: &str, resource: &str, judgement: Judgement) {
        let right = (user.to_owned(), resource.to_owned());
        self.script.0.lock().rights.insert(right, judgement);
    }

    fn set_token(&self, token: &str, check: TokenOwner<Arc<KnownUser>>) {
        let mut script = self.script.0.lock();
        script.tokens.insert(token.to_owned(), check);
    }

    /// The roles of some users change now, by their names and the resources of their watches. Nothing
    /// is decided about that under the lock that watches take when they open and end.
    fn changed(&self, is_concerned: impl Fn(&str) -> bool, concern: impl Fn(&str) -> Concern) {
        let is_free = || assert!(self.watches.inner.state.try_lock().is_some());
        let of_user = |user: &User| {
            is_free();
            is_concerned(&user.name)
        };
        let of_right = |user: &User, attributes: &Attributes| {
            is_free();
            assert!(is_concerned(&user.name));
            concern(&attributes.resource)
        };
        self.watches.changed(Instant::now(), of_user, of_right);
    }

    /// The subjects of the questions so far, each with its second.
    fn asked(&self) -> Vec<(u64, String)> {
        let mut script = self.script.0.lock();
        let asked = std::mem::take(&mut script.asked).into_iter();
        let seconds = |at: Instant| at.duration_since(self.start).as_secs();
        asked.map(|(at, subject)| (seconds(at), subject)).collect()
    }
}

fn is_over(watch: &mut OpenWatch) -> bool {
    poll_fn(|cx| watch.poll_end(cx)).now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn watches_with_the_same_user_and_attributes_share_a_question() {
    let scene = Scene::new();
    let watches: Vec<_> = (0..1_000)
        .map(|number| scene.open(&format!("u{}", number % 2), "pods"))
        .collect();
    sleep(5 * MINUTE).await;
    let mut asked = scene.asked();
    asked.sort_by(|one, other| one.1.cmp(&other.1));
    for user in ["u0 pods", "u1 pods"] {
        let count = asked.iter().filter(|(_, subject)| subject == user).count();
        assert!((5..=6).contains(&count), "{user}: {count} of {asked:?}");
    }
    drop(watches);
    sleep(5 * MINUTE).await;
    assert_eq!(scene.asked(), []);
    assert_eq!(
        scene.watches.inner.state.lock().register.questions(),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn watches_of_single_objects_share_a_question_if_names_are_covered() {
    for names_covered in [true, false] {
        let scene = Scene::new();
        scene.set_names_covered(Some(names_covered));
        let open = |number: u32| scene.open_pod(&number.to_string());
        let mut watches: Vec<_> = (0..100).map(open).collect();
        sleep(MINUTE).await;
        let asked = scene.asked();
        assert_eq!(asked.len(), if names_covered { 1 } else { 100 });
        // The user may not read all pods any more, but these two names.
        scene.set("u", "pods", Judgement::Denied);
        scene.set("u", "pods selected", Judgement::Denied);
        for name in ["7", "8"] {
            scene.set("u", &format!("pods selected {name}"), Judgement::Allowed);
        }
        sleep(3 * MINUTE).await;
        let open = watches.iter_mut().map(is_over).filter(|is_over| !is_over);
        assert_eq!(open.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn watches_of_single_objects_are_judged_by_their_names_once_these_are_not_covered() {
    // They move in several steps.
    const WATCHES: usize = 2 * CHANGED_AT_ONCE + 1;
    let scene = Scene::new();
    scene.set_names_covered(Some(true));
    let open = |number: usize| scene.open_pod(&number.to_string());
    let mut watches: Vec<_> = (0..WATCHES).map(open).collect();
    let mut of_all = scene.open("u", "pods");
    sleep(2 * MINUTE).await;
    let asked = scene.asked();
    assert!((2..=3).contains(&asked.len()), "{asked:?}");
    // Nothing moves while it is not known whether names are covered.
    scene.set_names_covered(None);
    sleep(2 * MINUTE).await;
    let asked = scene.asked();
    assert!((2..=3).contains(&asked.len()), "{asked:?}");
    // A webhook that forbids one name.
    scene.set_names_covered(Some(false));
    scene.set("u", "pods selected 7", Judgement::Denied);
    sleep(MINUTE + 15 * SECOND).await;
    let over: Vec<bool> = watches.iter_mut().map(is_over).collect();
    let over: Vec<usize> = (0..WATCHES).filter(|number| over[*number]).collect();
    assert_eq!(over, [7]);
    assert!(!is_over(&mut of_all));
    let questions = scene.watches.inner.state.lock().register.questions();
    // Those about the rights to the other names and to all of them, and that about the token of the
    // latter.
    assert_eq!(questions, (WATCHES, 1));
    let asked = scene.asked();
    let of_names = asked.iter().filter(|(_, of)| of == "u pods selected");
    assert!(of_names.count() >= WATCHES, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn only_a_clear_no_ends_a_watch() {
    for (judgement, ends) in [
        (Judgement::Allowed, false),
        (Judgement::Denied, true),
        (Judgement::Unclear, false),
        // The token itself is still accepted.
        (Judgement::Refused, false),
    ] {
        let scene = Scene::new();
        scene.set("u", "pods", judgement);
        let mut concerned = scene.open("u", "pods");
        let mut others = [scene.open("u", "nodes"), scene.open("v", "pods")];
        assert!(!is_over(&mut concerned));
        tokio::select! {
            () = poll_fn(|cx| concerned.poll_end(cx)) => {}
            () = sleep(3 * MINUTE) => {}
        }
        assert_eq!(is_over(&mut concerned), ends, "{judgement:?}");
        assert_eq!(scene.start.elapsed() <= MINUTE, ends, "{judgement:?}");
        assert!(!others.iter_mut().any(is_over), "{judgement:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_nothing_and_does_not_stop_the_questions() {
    let scene = Scene::new();
    scene.set("u", "pods", Judgement::Unclear);
    scene.set_token("u", TokenOwner::Unclear);
    let mut watch = scene.open("u", "pods");
    sleep(30 * MINUTE).await;
    assert!(!is_over(&mut watch));
    let asked = scene.asked();
    let about = |subject| asked.iter().filter(|(_, asked)| asked == subject).count();
    assert!((60..75).contains(&about("u pods")), "{asked:?}");
    assert!((40..55).contains(&about("u")), "{asked:?}");
    scene.set("u", "pods", Judgement::Denied);
    sleep(MINUTE).await;
    assert!(is_over(&mut watch));
}

#[tokio::test(start_paused = true)]
async fn a_token_must_be_refused_twice() {
    let scene = Scene::new();
    let mut watches = [scene.open("u", "pods"), scene.open("u", "nodes")];
    let mut other = scene.open_with("u", "second", "pods", None);
    let check = |scene: &Scene| scene.watches.deleted("uid-u", Instant::now());
    // The API server may refuse a good token once.
    scene.set_token("u", TokenOwner::Refused);
    check(&scene);
    sleep(SECOND).await;
    scene.set_token("u", TokenOwner::MayNotAsk);
    sleep(10 * SECOND).await;
    assert!(!watches.iter_mut().any(is_over));
    scene.set_token("u", TokenOwner::Refused);
    check(&scene);
    sleep(SECOND).await;
    assert!(!watches.iter_mut().any(is_over), "after one refusal");
    sleep(2 * SECOND).await;
    assert!(watches.iter_mut().all(is_over));
    assert!(!is_over(&mut other), "it has another token");
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_which_only_the_token_is_known_ends_with_it() {
    let scene = Scene::new();
    // Another watch with this token has a user, but the rights of this user do not matter here.
    let mut named = scene.open("u", "pods");
    let token = Token::new("u");
    let digest = scene.digester.digest(b"unnamed u");
    let caller = Arc::new(KnownCaller {
        user: Arc::new(KnownUser::unnamed(digest)),
        credential: Credential::Token(token),
        is_stale: false,
    });
    let mut unnamed = scene.watches.open(&caller, Some(digest), None, None);
    scene.set("u", "pods", Judgement::Denied);
    scene.set_token("u", TokenOwner::User(scene.user("u")));
    sleep(9 * MINUTE).await;
    assert!(is_over(&mut named) && !is_over(&mut unnamed));
    assert_eq!(
        scene.watches.inner.state.lock().register.questions(),
        (0, 1)
    );
    scene.set_token("u", TokenOwner::Refused);
    sleep(10 * MINUTE + 3 * SECOND).await;
    assert!(is_over(&mut unnamed));
}

#[tokio::test(start_paused = true)]
async fn watches_end_when_their_certificates_are_not_accepted_any_more() {
    let scene = Scene::new();
    let open = |name: &str, credential: Credential| {
        let caller = KnownCaller {
            user: scene.user(name),
            credential,
            is_stale: false,
        };
        let attributes = Some(Attributes::default());
        scene
            .watches
            .open(&Arc::new(caller), None, attributes, None)
    };
    let proof = || Credential::Certificate(Proof::for_tests(None));
    let mut lost: Vec<_> = (0..100).map(|_| open("lost", proof())).collect();
    let mut kept = [open("kept", proof()), open("lost", Credential::None)];
    let recheck = scene.watches.recheck(|caller| {
        assert!(scene.watches.inner.state.try_lock().is_some());
        caller.user().name != "lost"
    });
    recheck.await;
    assert!(lost.iter_mut().all(is_over));
    assert!(!kept.iter_mut().any(is_over));
    assert_eq!(scene.watches.inner.metrics.ended.get(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_right_is_asked_with_a_token_that_is_accepted() {
    let scene = Scene::new();
    scene.set_token("first", TokenOwner::Refused);
    let mut first = scene.open_with("u", "first", "pods", None);
    let mut second = scene.open_with("u", "second", "pods", None);
    sleep(MINUTE + 3 * SECOND).await;
    assert!(is_over(&mut first));
    assert!(!is_over(&mut second));
    drop(first);
    scene.set("u", "pods", Judgement::Denied);
    sleep(2 * MINUTE).await;
    assert!(is_over(&mut second));
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_asked_about_at_its_expiry() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let scene = Scene::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let expires = now.expect("after 1970").as_secs() + 30;
    let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{expires}}}"#));
    let token = format!("e30.{claims}.x");
    scene.set_token(&token, TokenOwner::Refused);
    let mut watch = scene.open_with("u", &token, "pods", None);
    sleep(28 * SECOND).await;
    assert_eq!(scene.asked(), []);
    sleep(5 * SECOND).await;
    assert!(is_over(&mut watch));
    let asked = scene.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_client_certificate_expires() {
    let scene = Scene::new();
    let expiring = |at: SystemTime| {
        let watches = scene.watches.clone();
        let calculate = move || {
            assert!(watches.inner.state.try_lock().is_some());
            Some(at)
        };
        Credential::Certificate(Proof::for_tests(Some(Expiry::new(calculate))))
    };
    let open = |credential| {
        let caller = KnownCaller {
            user: scene.user("u"),
            credential,
            is_stale: false,
        };
        let attributes = Attributes::default();
        scene
            .watches
            .open(&Arc::new(caller), None, Some(attributes), None)
    };
    let mut short = [
        open(expiring(SystemTime::now() + 30 * SECOND)),
        open(expiring(SystemTime::now() + 30 * SECOND)),
    ];
    let mut long = [
        open(expiring(SystemTime::now() + 100_000 * SECOND)),
        // Users that an authenticating proxy names have such a proof.
        open(Credential::Certificate(Proof::for_tests(None))),
    ];
    let closed = open(expiring(SystemTime::now() + 20 * SECOND));
    drop(closed);
    let mut expired = open(expiring(SystemTime::now() - 10 * SECOND));
    sleep(SECOND / 10).await;
    assert!(is_over(&mut expired));
    sleep(29 * SECOND).await;
    assert!(!short.iter_mut().any(is_over));
    sleep(2 * SECOND).await;
    assert!(short.iter_mut().all(is_over));
    assert_eq!(scene.asked(), []);
    sleep(10 * MINUTE).await;
    assert!(!long.iter_mut().any(is_over));
    let register = &scene.watches.inner.state.lock().register;
    assert_eq!(register.watches(), long.len());
}

#[tokio::test(start_paused = true)]
async fn a_token_with_another_user_is_judged_as_that_user() {
    let scene = Scene::new();
    scene.set("other", "pods", Judgement::Denied);
    scene.set_token("u", TokenOwner::User(scene.user("other")));
    let mut watch = scene.open("u", "pods");
    sleep(10 * MINUTE + SECOND).await;
    assert!(is_over(&mut watch));
}

#[tokio::test(start_paused = true)]
async fn a_user_whose_own_questions_are_never_answered_loses_its_watches_all_the_same() {
    for unanswered in [Judgement::Unclear, Judgement::NoAnswer] {
        let scene = Scene::new();
        scene.script.0.lock().with_token = Some(unanswered);
        scene.set("lost", "pods", Judgement::Denied);
        let (mut lost, mut kept) = (scene.open("lost", "pods"), scene.open("kept", "pods"));
        scene.changed(|_| true, |_| Concern::LikelyLost);
        sleep(4 * SECOND).await;
        assert!(is_over(&mut lost));
        sleep(5 * MINUTE).await;
        assert!(!is_over(&mut kept));
        // kubefan may not ask with its own credentials.
        scene.set("kept", "pods", Judgement::Unclear);
        sleep(5 * MINUTE).await;
        scene.script.0.lock().with_token = Some(Judgement::Denied);
        assert!(!is_over(&mut kept));
        sleep(MINUTE + SECOND).await;
        assert!(is_over(&mut kept));
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_that_depends_on_the_selector_is_judged_with_it() {
    let scene = Scene::new();
    scene.set("u", "pods", Judgement::Denied);
    let mut general = scene.open("u", "pods");
    let mut selective = scene.open_with("u", "u", "pods", Some("app=a"));
    sleep(MINUTE).await;
    assert!(is_over(&mut general));
    assert!(!is_over(&mut selective));
    scene.asked();
    sleep(5 * MINUTE).await;
    let asked = scene.asked();
    assert!(!asked.is_empty());
    assert!(
        asked
            .iter()
            .all(|(_, subject)| subject == "u pods selected"),
        "{asked:?}"
    );
    scene.set("u", "pods selected", Judgement::Denied);
    sleep(MINUTE).await;
    assert!(is_over(&mut selective));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_allowed_after_the_question_is_not_ended_by_its_answer() {
    let scene = Scene::new();
    scene.set("u", "pods", Judgement::Denied);
    scene.script.0.lock().delay = 10 * SECOND;
    let mut early = scene.open("u", "pods");
    while scene.script.0.lock().asked.is_empty() {
        sleep(SECOND / 10).await;
    }
    scene.set("u", "pods", Judgement::Allowed);
    let mut late = scene.open("u", "pods");
    sleep(11 * SECOND).await;
    assert!(is_over(&mut early));
    assert!(!is_over(&mut late));
    sleep(5 * MINUTE).await;
    assert!(!is_over(&mut late));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_judged_several_times_and_only_for_those_concerned() {
    let scene = Scene::new();
    let mut watch = scene.open("u", "pods");
    let mut other = scene.open("v", "pods");
    sleep(2 * SECOND).await;
    scene.changed(|user| user == "u", |_| Concern::Kept);
    sleep(10 * SECOND).await;
    let asked: Vec<u64> = scene.asked().into_iter().map(|(at, _)| at).collect();
    assert_eq!(asked, [2, 3, 7]);
    // The API server's authorizer learns of the change after kubefan.
    scene.changed(|user| user == "u", |_| Concern::Kept);
    sleep(SECOND / 2).await;
    scene.set("u", "pods", Judgement::Denied);
    scene.set("v", "pods", Judgement::Denied);
    sleep(SECOND).await;
    assert!(is_over(&mut watch));
    assert!(!is_over(&mut other));
}

#[tokio::test(start_paused = true)]
async fn after_a_change_the_question_with_selectors_is_judged_several_times_too() {
    let scene = Scene::new();
    let mut watch = scene.open_with("u", "u", "pods", Some("app=a"));
    sleep(2 * SECOND).await;
    // One authorizer knows of the change at once, the other after half a second.
    scene.set("u", "pods", Judgement::Denied);
    scene.changed(|_| true, |_| Concern::Kept);
    sleep(SECOND / 2).await;
    assert!(!is_over(&mut watch));
    scene.set("u", "pods selected", Judgement::Denied);
    sleep(SECOND).await;
    let subjects: Vec<String> = scene.asked().into_iter().map(|(_, of)| of).collect();
    assert_eq!(subjects, ["u pods", "u pods selected", "u pods selected"]);
    assert!(is_over(&mut watch));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_moves_while_a_change_is_decided_is_judged_several_times_too() {
    let scene = Scene::new();
    let _watch = scene.open_with("u", "u", "pods", Some("app=a"));
    let now = Instant::now();
    let concern = |_: &User, _: &Attributes| {
        scene.watches.with(|state| {
            let register = &mut state.register;
            let (user, _) = register.users();
            let (general, _) = register.rights_of(&user[0])[0];
            let ended = register.judged(general, None, Judgement::Denied, now, now);
            assert!(ended.is_empty());
        });
        Concern::Kept
    };
    scene.watches.changed(now, |_| true, concern);
    sleep(40 * SECOND).await;
    let of = |at| (at, "u pods selected".to_owned());
    assert_eq!(scene.asked(), [of(0), of(1), of(5), of(30)]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_moves_to_a_user_whose_roles_changed_is_judged_several_times() {
    let scene = Scene::new();
    scene.set_token("u", TokenOwner::User(scene.user("other")));
    let _watch = scene.open("u", "pods");
    // The user has no watch yet.
    let now = Instant::now();
    scene.recent.roles.add_for_tests("other", now);
    scene.changed(|user| user == "other", |_| Concern::LikelyLost);
    scene.watches.deleted("uid-u", now);
    sleep(40 * SECOND).await;
    let asked = scene.asked().into_iter();
    let of_other = asked.filter(|(_, subject)| subject == "other pods");
    let times: Vec<u64> = of_other.map(|(at, _)| at).collect();
    assert_eq!(times, [0, 1, 5, 30]);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_asked_about_soon_if_its_watch_opens_after_the_deletion_of_its_account() {
    for (is_known, expected) in [(true, &[5, 11, 30][..]), (false, &[5, 30])] {
        let scene = Scene::new();
        if is_known {
            scene.recent.deleted.add("uid-u", Instant::now())
        } else {
            scene.recent.deleted.add_unknown(Instant::now())
        }
        sleep(5 * SECOND).await;
        let mut first = scene.open("u", "pods");
        let _other = scene.open("v", "pods");
        sleep(SECOND).await;
        // The question about the token is already asked after the change, so this watch adds no
        // question.
        let _second = scene.open("u", "nodes");
        sleep(4 * MINUTE).await;
        let asked = scene.asked().into_iter();
        let of_token = asked.filter(|(_, subject)| subject == "u");
        let times: Vec<u64> = of_token.map(|(at, _)| at).collect();
        assert_eq!(times, expected);
        assert!(!is_over(&mut first));
        // The deletion is settled.
        let _late = scene.open("u", "secrets");
        sleep(SECOND).await;
        assert!(!scene.asked().iter().any(|(_, subject)| subject == "u"));
    }
}

/// Deletes a binding of `system:authenticated`, or changes a ClusterRole that others are aggregated
/// into. Each of a thousand users has a separate question.
#[tokio::test(start_paused = true)]
async fn a_broad_change_is_judged_at_the_permitted_rate() {
    for lost in [1_000, 500] {
        let scene = Scene::with_rate(50);
        let resource = |number| if number < lost { "lost" } else { "kept" };
        let mut watches: Vec<_> = (0..1_000)
            .map(|number| scene.open(&format!("u{number}"), resource(number)))
            .collect();
        for number in 0..lost {
            scene.set(&format!("u{number}"), "lost", Judgement::Denied);
        }
        sleep(SECOND).await;
        scene.asked();
        let concern = |resource: &str| match resource {
            "lost" => Concern::LikelyLost,
            _ => Concern::Kept,
        };
        scene.changed(|_| true, concern);
        sleep(20 * SECOND).await;
        let mut ended: Vec<bool> = watches.iter_mut().map(is_over).collect();
        assert!(ended.drain(..lost).all(|is_over| is_over), "{lost}");
        assert!(!ended.contains(&true), "{lost}");
        sleep(40 * SECOND).await;
        let mut asked: Vec<u64> = scene.asked().into_iter().map(|(at, _)| at).collect();
        asked.sort_unstable();
        for (number, from) in asked.iter().enumerate() {
            let within = asked[number..].iter().take_while(|at| **at < from + 10);
            // The questions of two seconds may be asked at once.
            let most = 50 * (10 + 2) + 1;
            assert!(within.count() <= most, "{asked:?}");
        }
        assert!(asked.len() >= 1_000);
        assert!(!watches[lost..].iter_mut().any(is_over));
    }
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_limited_and_likely_losses_are_first() {
    let scene = Scene::with_rate(10);
    let _watches: Vec<_> = (0..200)
        .map(|number| scene.open("u", &format!("r{number}")))
        .collect();
    let lost = scene.open("u", "lost");
    advance(SECOND).await;
    let concern = |resource: &str| match resource {
        "lost" => Concern::LikelyLost,
        _ => Concern::Kept,
    };
    scene.changed(|_| true, concern);
    sleep(10 * SECOND).await;
    let asked = scene.asked();
    assert_eq!(asked[0].1, "u lost");
    assert!((110..=125).contains(&asked.len()), "{}", asked.len());
    drop(lost);
}

/// A client reads its watch if this is true.
fn gets_events(watch: &mut OpenWatch) -> bool {
    !is_over(watch) && !watch.is_held()
}

#[tokio::test(start_paused = true)]
async fn a_lost_right_shows_nothing_more_however_many_questions_wait() {
    let scene = Scene::new();
    let mut watches: Vec<_> = (0..5_657)
        .map(|number| scene.open_with("many", "many", &format!("r{number}"), None))
        .collect();
    let mut kept = watches.split_off(5_000);
    let mut broad = scene.open("many", "pods");
    let mut other = scene.open("other", "pods");
    for number in 0..5_000 {
        scene.set("many", &format!("r{number}"), Judgement::Denied);
    }
    scene.set("many", "pods", Judgement::Denied);
    // All questions are due already.
    sleep(MINUTE).await;
    scene.changed(|user| user == "many", |_| Concern::LikelyLost);
    assert!(!watches.iter_mut().chain(&mut kept).any(gets_events));
    assert!(gets_events(&mut other));
    for _ in 0..60 {
        sleep(5 * SECOND).await;
        assert!(!watches.iter_mut().any(gets_events));
    }
    assert!(watches.iter_mut().all(is_over));
    assert!(is_over(&mut broad));
    // A webhook grants the others: they get the events that were held back.
    assert!(kept.iter_mut().all(gets_events));
}

#[tokio::test(start_paused = true)]
async fn the_yes_of_an_authorizer_that_lags_does_not_outlast_a_second() {
    let scene = Scene::with_rate(1);
    let mut watch = scene.open("u", "pods");
    sleep(SECOND).await;
    scene.changed(|user| user == "u", |_| Concern::LikelyLost);
    sleep(SECOND / 10).await;
    assert!(gets_events(&mut watch), "after a yes");
    // Now many questions wait, before that of the watch is due again.
    let _others: Vec<_> = (0..1_000)
        .map(|number| scene.open(&format!("u{number}"), "pods"))
        .collect();
    scene.changed(|user| user != "u", |_| Concern::LikelyLost);
    scene.set("u", "pods", Judgement::Denied);
    sleep(SECOND).await;
    assert!(!is_over(&mut watch) && watch.is_held());
    sleep(2_000 * SECOND).await;
    assert!(is_over(&mut watch));
}

#[tokio::test(start_paused = true)]
async fn in_an_outage_a_right_that_is_probably_lost_waits_for_its_answer() {
    for (judgement, ends) in [(Judgement::Allowed, false), (Judgement::Denied, true)] {
        let scene = Scene::new();
        scene.set("u", "pods", Judgement::NoAnswer);
        let mut watch = scene.open("u", "pods");
        let mut other = scene.open("u", "nodes");
        scene.set("u", "nodes", Judgement::NoAnswer);
        let lost = |resource: &str| match resource {
            "pods" => Concern::LikelyLost,
            _ => Concern::Kept,
        };
        scene.changed(|_| true, lost);
        for _ in 0..10 {
            sleep(MINUTE).await;
            assert!(!is_over(&mut watch) && watch.is_held());
            assert!(gets_events(&mut other));
        }
        scene.set("u", "pods", judgement);
        sleep(MINUTE).await;
        assert_eq!(is_over(&mut watch), ends);
        assert_eq!(gets_events(&mut watch), !ends);
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_granted_again_needs_no_answer() {
    let scene = Scene::new();
    scene.set("u", "pods", Judgement::NoAnswer);
    let mut watch = scene.open("u", "pods");
    let woken = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let wakes = Arc::clone(&woken);
    let waker = futures_util::task::waker(Arc::new(CountedWake(wakes)));
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(watch.poll_end(&mut cx).is_pending());
    for round in 1..3 {
        scene.changed(|_| true, |_| Concern::LikelyLost);
        sleep(SECOND).await;
        assert!(watch.is_held());
        // kubefan does not see any more what the roles grant.
        scene.changed(|_| true, |_| Concern::Unclear);
        assert!(watch.is_held());
        scene.changed(|_| true, |_| Concern::Kept);
        assert!(gets_events(&mut watch));
        // The body was not polled since, so its waker has not changed.
        assert!(watch.poll_end(&mut cx).is_pending());
        assert_eq!(woken.load(std::sync::atomic::Ordering::Relaxed), round);
    }
}

/// Counts how often a watch is woken.
struct CountedWake(Arc<std::sync::atomic::AtomicU32>);

impl futures_util::task::ArcWake for CountedWake {
    fn wake_by_ref(counted: &Arc<Self>) {
        counted.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_watches_that_get_no_events() {
    let scene = Scene::new();
    scene.set("u", "pods", Judgement::NoAnswer);
    let (mut held, mut other) = (scene.open("u", "pods"), scene.open("v", "pods"));
    scene.changed(|user| user == "u", |_| Concern::LikelyLost);
    sleep(SECOND).await;
    assert!(held.is_held());
    let shutdown = scene.watches.inner.shutdown.clone();
    // The connection of the watch has such a hold.
    let _hold = shutdown.hold();
    let ending = shutdown.reached(Phase::EndWatches);
    tokio::spawn(async move { shutdown.drain().await });
    ending.await;
    sleep(SECOND / 10).await;
    assert!(is_over(&mut held) && !is_over(&mut other));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_many_accounts_does_not_delay_the_others() {
    let scene = Scene::new();
    let _many: Vec<_> = (0..1_500)
        .map(|number| scene.open(&format!("many/{number}"), "pods"))
        .collect();
    let mut lost = scene.open("lost", "pods");
    sleep(MINUTE).await;
    scene.changed(|user| user.starts_with("many"), |_| Concern::LikelyLost);
    sleep(3 * SECOND).await;
    scene.set("lost", "pods", Judgement::Denied);
    scene.changed(|user| user == "lost", |_| Concern::Unclear);
    sleep(SECOND / 2).await;
    assert!(is_over(&mut lost));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_refused_elsewhere_is_asked_about_at_once() {
    let scene = Scene::new();
    let (mut watch, mut other) = (scene.open("u", "pods"), scene.open("v", "pods"));
    scene.set_token("u", TokenOwner::Refused);
    let digest = |token: &str| scene.digester.digest(token.as_bytes());
    scene.watches.token_refused(&[digest("u")]);
    scene.watches.token_refused(&[digest("unknown")]);
    sleep(SECOND / 10).await;
    // After the first refusal, no more events.
    assert!(!is_over(&mut watch) && watch.is_held());
    sleep(2 * SECOND).await;
    assert!(is_over(&mut watch));
    assert!(gets_events(&mut other));
    // A wrong refusal has no effect.
    scene.watches.token_refused(&[digest("v")]);
    sleep(5 * SECOND).await;
    assert!(gets_events(&mut other));
    let asked = scene.asked();
    assert_eq!(asked.iter().filter(|(_, token)| token == "v").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_user_with_very_many_questions_does_not_delay_the_others() {
    for concern in [Concern::Kept, Concern::LikelyLost] {
        let scene = Scene::new();
        let _many: Vec<_> = (0..10_000)
            .map(|number| scene.open("many", &format!("r{number}")))
            .collect();
        let mut lost = scene.open("lost", "pods");
        scene.changed(|user| user == "many", |_| Concern::LikelyLost);
        sleep(10 * SECOND).await;
        scene.set("lost", "pods", Judgement::Denied);
        scene.changed(|user| user == "lost", |_| concern);
        sleep(SECOND / 2).await;
        assert!(is_over(&mut lost), "{concern:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn users_with_slow_answers_do_not_delay_the_others() {
    let scene = Scene::with_rate(1_000);
    let is_slow = |user: &str| user.starts_with("slow");
    let _slow: Vec<_> = (0..700)
        .map(|number| scene.open(&format!("slow-{}", number % 7), &format!("r{number}")))
        .collect();
    let mut lost = scene.open("lost", "pods");
    scene.script.0.lock().delay = 10 * SECOND;
    scene.changed(is_slow, |_| Concern::LikelyLost);
    sleep(SECOND).await;
    assert_eq!(scene.asked().len(), 7 * MOST_IN_FLIGHT.of_user);
    scene.script.0.lock().delay = Duration::ZERO;
    scene.set("lost", "pods", Judgement::Denied);
    scene.changed(|user| user == "lost", |_| Concern::LikelyLost);
    sleep(SECOND / 2).await;
    assert!(is_over(&mut lost));
}
