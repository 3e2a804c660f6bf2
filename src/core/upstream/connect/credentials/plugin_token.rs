//! Bearer tokens from an exec plugin, which runs again before a token expires.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use hyper::rt::Executor;
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::Service;

use super::exec_plugin::{ExecPlugin, Occasion, PluginError};
use crate::body::{Body, BoxError};
use crate::upstream::connect::connection::runtime_executor::RuntimeExecutor;
use crate::upstream::connect::stack::Stack;

/// How long before its expiry a token is renewed.
const RENEWAL: Duration = Duration::from_secs(60);
/// How long after a run the plugin is not run again. It may have failed, or all its tokens may
/// expire soon, or the clocks may differ.
const PAUSE: Duration = Duration::from_secs(10);

/// Adds the token of an exec plugin to requests. Clones share the token.
#[derive(Clone)]
pub(in crate::upstream::connect) struct PluginToken {
    plugin: Arc<ExecPlugin>,
    current: Arc<ArcSwap<Token>>,
    /// The last run. Locked while the plugin runs, so that all requests share the run.
    last: Arc<tokio::sync::Mutex<Option<Run>>>,
    executor: RuntimeExecutor,
}

/// A run of the plugin that has ended.
#[derive(Debug)]
struct Run {
    ended: Instant,
    outcome: Result<(), PluginError>,
    /// True if the token had expired when the run ended.
    left_expired: bool,
}

#[derive(Debug)]
struct Token {
    header: HeaderValue,
    expires_at: Option<Timestamp>,
}

/// A service that adds a [`PluginToken`] to each request.
#[derive(Clone)]
pub(in crate::upstream::connect) struct PluginTokenService {
    inner: Stack,
    token: PluginToken,
}

impl Token {
    /// Returns true if the token expires within `time`.
    fn expires_within(&self, time: Duration) -> bool {
        let latest = self.expires_at.and_then(|at| at.checked_sub(time).ok());
        latest.is_some_and(|latest| latest <= Timestamp::now())
    }
}

impl PluginToken {
    /// Returns the token `header`, which `plugin` has printed, and its later ones.
    pub(in crate::upstream::connect) fn new(
        plugin: ExecPlugin,
        header: HeaderValue,
        expires_at: Option<Timestamp>,
    ) -> Self {
        Self {
            plugin: Arc::new(plugin),
            current: Arc::new(ArcSwap::from_pointee(Token { header, expires_at })),
            last: Arc::default(),
            executor: RuntimeExecutor::current(),
        }
    }

    /// Adds the token to the requests of `inner`.
    pub(in crate::upstream::connect) fn layer(self, inner: Stack) -> PluginTokenService {
        PluginTokenService { inner, token: self }
    }

    /// Returns the `Authorization` header, if the plugin need not run for it.
    fn fresh(&self) -> Option<HeaderValue> {
        let token = self.current.load();
        (!token.expires_within(RENEWAL)).then(|| token.header.clone())
    }

    /// Returns the `Authorization` header. Runs the plugin if the token expires soon. A run that
    /// has begun continues if the future is dropped, because it may take longer than each of the
    /// requests that wait for it.
    async fn header(&self) -> Result<HeaderValue, PluginError> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some(header) = self.fresh() {
            return Ok(header);
        }
        // A token that has expired since may be one that the plugin had from an earlier run.
        let has_expired = self.current.load().expires_within(Duration::ZERO);
        let counts = |run: &&Run| {
            let has_expired_since = has_expired && !run.left_expired;
            run.ended.elapsed() < PAUSE && (run.outcome.is_err() || !has_expired_since)
        };
        if let Some(run) = last.as_ref().filter(counts) {
            return self.after(run.outcome.clone());
        }
        let (token, (done, renewed)) = (self.clone(), oneshot::channel());
        self.executor.execute(async move {
            let outcome = token.renew().await;
            *last = Some(Run {
                ended: Instant::now(),
                outcome: outcome.clone(),
                left_expired: token.current.load().expires_within(Duration::ZERO),
            });
            drop(last);
            // Sending fails if the request was cancelled.
            done.send(outcome).ok();
        });
        // The sender is dropped without an outcome if the runtime shuts down.
        self.after(renewed.await.unwrap_or(Ok(())))
    }

    /// Returns the `Authorization` header after a run with this outcome.
    fn after(&self, outcome: Result<(), PluginError>) -> Result<HeaderValue, PluginError> {
        let token = self.current.load();
        match outcome {
            Err(error) if token.expires_within(Duration::ZERO) => Err(error),
            _ => Ok(token.header.clone()),
        }
    }

    async fn renew(&self) -> Result<(), PluginError> {
        let run = self.plugin.run(Occasion::Renewal).await;
        let renewed = run.and_then(|credential| {
            let header = credential.token;
            let header =
                header.ok_or_else(|| PluginError::malformed("it has no token any more"))?;
            Ok(Token {
                header,
                expires_at: credential.expires_at,
            })
        });
        let renewed = renewed.inspect_err(|error| {
            let plugin = self.plugin.name();
            tracing::warn!(plugin, %error, "the exec plugin cannot renew kubefan's token");
        });
        self.current.store(Arc::new(renewed?));
        Ok(())
    }
}

impl Service<Request<Body>> for PluginTokenService {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(header) = self.token.fresh() {
            request.headers_mut().insert(AUTHORIZATION, header);
            return self.inner.call(request);
        }
        let (token, mut inner) = (self.token.clone(), self.inner.clone());
        Box::pin(async move {
            let header = token.header().await?;
            request.headers_mut().insert(AUTHORIZATION, header);
            // The connections are always ready.
            inner.call(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kube::config::AuthInfo;
    use serde_json::json;
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::body;

    /// Returns a stack that answers with the token it gets, which `plugin` renews because it
    /// expires `after` now.
    fn stack(folder: &Path, after: Duration, script: &str) -> PluginTokenService {
        let exec = json!({
            "command": "/bin/sh",
            "args": ["-c", format!("cd {} && echo >> runs && {script}", folder.display())],
            "interactiveMode": "Never",
        });
        let exec = serde_json::from_value(exec).expect("a plugin");
        let mut auth = AuthInfo {
            exec: Some(exec),
            ..AuthInfo::default()
        };
        let plugin = ExecPlugin::take(&mut auth).expect("a plugin");
        let expires_at = Timestamp::now().checked_add(after).expect("a time");
        let old = HeaderValue::from_static("Bearer old");
        let token = PluginToken::new(plugin, old, Some(expires_at));
        token.layer(Stack::new(service_fn(
            async |request: Request<Body>| -> Result<Response<Body>, BoxError> {
                let token = request.headers()[AUTHORIZATION].clone();
                Ok(Response::new(body::full(token.as_bytes().to_vec())))
            },
        )))
    }

    async fn sent(stack: &PluginTokenService) -> Result<String, String> {
        let answer = stack.clone().oneshot(Request::new(body::empty())).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let body = http_body_util::BodyExt::collect(answer.into_body()).await;
        let body = body.expect("a body").to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn runs(folder: &Path) -> usize {
        let runs = std::fs::read_to_string(folder.join("runs"));
        runs.unwrap_or_default().lines().count()
    }

    const NEW: &str = r#"echo '{"status":{"token":"new"}}'"#;

    #[tokio::test]
    async fn requests_share_a_run_and_fresh_tokens_need_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let hour = Duration::from_secs(3_600);
        let fresh = stack(folder.path(), hour, NEW);
        assert_eq!(sent(&fresh).await.as_deref(), Ok("Bearer old"));
        assert_eq!(runs(folder.path()), 0);
        let expiring = stack(folder.path(), RENEWAL / 2, NEW);
        let all = futures_util::future::join_all((0..8).map(|_| sent(&expiring))).await;
        assert!(
            all.iter().all(|token| token.as_deref() == Ok("Bearer new")),
            "{all:?}"
        );
        assert_eq!(runs(folder.path()), 1);
    }

    #[tokio::test]
    async fn a_failed_renewal_fails_requests_only_after_the_expiry_and_pauses() {
        for (after, expected) in [
            (RENEWAL / 2, Ok("Bearer old".to_owned())),
            (
                Duration::ZERO,
                Err("it failed with exit status: 1".to_owned()),
            ),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let failing = stack(folder.path(), after, "exit 1");
            for _ in 0..3 {
                assert_eq!(sent(&failing).await, expected);
            }
            assert_eq!(runs(folder.path()), 1);
        }
    }

    #[tokio::test]
    async fn tokens_that_always_expire_soon_cost_one_run_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let expired = Timestamp::UNIX_EPOCH;
        let expired =
            format!(r#"echo '{{"status":{{"token":"new","expirationTimestamp":"{expired}"}}}}'"#);
        let stack = stack(folder.path(), RENEWAL / 2, &expired);
        for _ in 0..3 {
            assert_eq!(sent(&stack).await.as_deref(), Ok("Bearer new"));
        }
        assert_eq!(runs(folder.path()), 1);
    }

    #[tokio::test]
    async fn a_token_that_expired_after_the_last_run_costs_another_one() {
        for (left_expired, expected, count) in [(false, "Bearer new", 1), (true, "Bearer old", 0)] {
            let folder = tempfile::tempdir().expect("a folder");
            let stack = stack(folder.path(), Duration::ZERO, NEW);
            *stack.token.last.lock().await = Some(Run {
                ended: Instant::now(),
                outcome: Ok(()),
                left_expired,
            });
            assert_eq!(sent(&stack).await.as_deref(), Ok(expected));
            assert_eq!(runs(folder.path()), count);
        }
    }

    #[tokio::test]
    async fn a_run_continues_without_the_request_that_began_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("continue");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let waiting = stack(
            folder.path(),
            Duration::ZERO,
            &format!("read line < continue; {NEW}"),
        );
        // Opening the pipe waits for the plugin.
        let opened = tokio::task::spawn_blocking(move || std::fs::File::create(pipe));
        let mut opened = tokio::select! {
            answer = sent(&waiting) => panic!("{answer:?}"),
            opened = opened => opened.expect("no panic").expect("a pipe"),
        };
        std::io::Write::write_all(&mut opened, b"\n").expect("a reader");
        assert_eq!(sent(&waiting).await.as_deref(), Ok("Bearer new"));
        assert_eq!(runs(folder.path()), 1);
    }
}
