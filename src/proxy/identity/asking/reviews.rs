//! The API server's reviews: the user of a caller, and what the user may do.

use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE};
use http::{Request, StatusCode};
use kubefan_core::body;
use kubefan_core::upstream::{Client, Error, Identity};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::identity::metrics::ReviewMetrics;
use crate::identity::tokens::token::Token;
use crate::identity::{Attributes, User};

/// How long a review may take, from its request to the end of its answer.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends reviews to the API server. Each review uses an HTTP/1.1 connection exclusively, so that no
/// other request of a caller can delay the review or close its connection.
pub(in crate::identity) struct Reviewer {
    client: Client,
    metrics: ReviewMetrics,
}

/// What happens to the connection of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::identity) enum Connection {
    /// The connection remains open, and a later review may use it.
    Kept,
    /// The connection is closed, so the next review uses another connection, perhaps to another API
    /// server.
    Closed,
}

/// The API server's answer about the owner of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::identity) enum TokenOwner<U = User> {
    /// This user.
    User(U),
    /// The API server does not accept the token now. It also gives this answer for any error of an
    /// authenticator.
    Refused,
    /// The API server accepts the token, but its owner may not ask for its own name.
    MayNotAsk,
    /// There is no clear answer.
    Unclear,
    /// The API server can't be reached, or can't answer.
    NoAnswer,
}

/// The API server's answer about a user's right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::identity) enum Judgement {
    /// The user has the right.
    Allowed,
    /// The user does not have the right, and no authorizer failed.
    Denied,
    /// The API server did not accept the user's token.
    Refused,
    /// There is no clear answer.
    Unclear,
    /// The API server can't be reached, or can't answer.
    NoAnswer,
    /// kubefan did not ask the API server, because too many questions wait.
    Busy,
}

/// Whether a right to all objects of a resource covers each of them by its name, as far as the API
/// server shows what its authorizers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::identity) enum NameCoverage {
    /// It does, because every authorizer lists rights, and a listed right without names has no
    /// exceptions.
    Covered,
    /// An authorizer does not list rights, so it may forbid single names; or the API server refuses
    /// to say. The text says why.
    Uncovered(String),
    /// The API server has not answered, or its answer says nothing about names. Unlike for a
    /// [`Judgement`], this includes an overloaded API server (429).
    NoAnswer,
}

/// The first word of a review's API group, and the review's kind. The resource is the kind in lower
/// case, followed by `s`.
type ReviewKind = (&'static str, &'static str);

const SELF_REVIEW: ReviewKind = ("authentication", "SelfSubjectReview");
const TOKEN_REVIEW: ReviewKind = ("authentication", "TokenReview");
const SELF_ACCESS: ReviewKind = ("authorization", "SelfSubjectAccessReview");
const ACCESS: ReviewKind = ("authorization", "SubjectAccessReview");
const SELF_RULES: ReviewKind = ("authorization", "SelfSubjectRulesReview");

/// A review of rules needs a namespace. kubefan ignores the rules, so it may be any.
const ANY_NAMESPACE: &str = "default";

#[derive(Debug, Deserialize)]
struct Review<S> {
    status: S,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AccessStatus {
    allowed: bool,
    evaluation_error: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RulesStatus {
    /// kube-apiserver always says whether the rules are incomplete.
    incomplete: Option<bool>,
    evaluation_error: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SelfStatus {
    user_info: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
    error: String,
}

impl Reviewer {
    pub(in crate::identity) fn new(client: Client, metrics: ReviewMetrics) -> Self {
        Self { client, metrics }
    }

    /// Asks for the owner of a token, with the token itself.
    pub(in crate::identity) async fn self_review(
        &self,
        token: &Token,
        connection: Connection,
    ) -> TokenOwner {
        let asked = self.ask(SELF_REVIEW, json!({}), Some(token), connection);
        match asked.await {
            Ok(SelfStatus { user_info }) if !user_info.name.is_empty() => {
                TokenOwner::User(user_info)
            }
            Err(error) if is(&error, StatusCode::UNAUTHORIZED) => TokenOwner::Refused,
            Err(error) if is(&error, StatusCode::FORBIDDEN) => TokenOwner::MayNotAsk,
            Err(error) if is_outage(&error) => TokenOwner::NoAnswer,
            Ok(_) | Err(_) => TokenOwner::Unclear,
        }
    }

    /// Asks for the owner of a token, with kubefan's rights.
    pub(in crate::identity) async fn token_review(
        &self,
        token: &Token,
        connection: Connection,
    ) -> TokenOwner {
        let spec = json!({"token": token.secret()});
        let asked = self.ask::<TokenStatus>(TOKEN_REVIEW, spec, None, connection);
        match asked.await {
            Ok(status) if status.authenticated && !status.user.name.is_empty() => {
                // The caller's requests need no separate connection any more.
                self.client.note_accepted(token.secret());
                TokenOwner::User(status.user)
            }
            // The error is also set for a wrong token, so it does not show whether the answer is
            // definite.
            Ok(status) if !status.authenticated => {
                tracing::debug!(error = status.error, "a token was not accepted");
                TokenOwner::Refused
            }
            Err(error) if is_outage(&error) => TokenOwner::NoAnswer,
            Ok(_) | Err(_) => TokenOwner::Unclear,
        }
    }

    /// Asks with the user's token whether the user has a right.
    pub(in crate::identity) async fn self_access(
        &self,
        token: &Token,
        attributes: &Attributes,
    ) -> Judgement {
        let (key, value) = attributes.of_spec();
        let spec = json!({key: value});
        let asked = self.ask(SELF_ACCESS, spec, Some(token), Connection::Kept);
        judgement(asked.await)
    }

    /// Asks with kubefan's rights whether `user` has a right.
    pub(in crate::identity) async fn access(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Judgement {
        let (key, value) = attributes.of_spec();
        let spec = json!({
            key: value,
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
        });
        let asked = self.ask(ACCESS, spec, None, Connection::Kept);
        match judgement(asked.await) {
            // The API server refused kubefan's credentials, not the user's.
            Judgement::Refused => Judgement::Unclear,
            judgement => judgement,
        }
    }

    /// Asks with kubefan's rights whether a right to all objects covers each of them by its name.
    ///
    /// A list of kubefan's own rules shows it. kube-apiserver calls the list incomplete if one of
    /// its authorizers does not list rules. A webhook lists none for any user, and the node
    /// authorizer none for nodes. RBAC, ABAC and `AlwaysAllow` list all rules. They forbid nothing
    /// that one of their rules allows.
    pub(in crate::identity) async fn name_coverage(&self) -> NameCoverage {
        let spec = json!({"namespace": ANY_NAMESPACE});
        let asked = self.ask(SELF_RULES, spec, None, Connection::Kept);
        name_coverage(asked.await)
    }

    /// Sends a review, with `token` or with kubefan's credentials, and returns its status.
    async fn ask<S: DeserializeOwned>(
        &self,
        (group, kind): ReviewKind,
        spec: Value,
        token: Option<&Token>,
        connection: Connection,
    ) -> Result<S, Error> {
        let api_version = format!("{group}.k8s.io/v1");
        let review = json!({"apiVersion": api_version, "kind": kind, "spec": spec});
        let resource = format!("{}s", kind.to_ascii_lowercase());
        let mut request = Request::post(format!("/apis/{api_version}/{resource}"))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json");
        if connection == Connection::Closed {
            request = request.header(CONNECTION, "close");
        }
        let identity = match token {
            Some(token) => {
                request = request.header(AUTHORIZATION, token.header());
                Identity::Caller
            }
            None => Identity::Kubefan,
        };
        let request = request.body(body::full(review.to_string()));
        let request = request.map_err(|error| Error::Request(error.into()))?;
        let sent_at = Instant::now();
        let answer = self.client.request_json_alone(identity, request);
        let answer = timeout(REVIEW_TIMEOUT, answer).await;
        let answer = answer.unwrap_or(Err(Error::Timeout(REVIEW_TIMEOUT)));
        let code = match &answer {
            Ok(_) => Some(StatusCode::CREATED.as_u16()),
            Err(error) => error.status().map(|status| status.code),
        };
        self.metrics.sent((group, kind), code, sent_at.elapsed());
        answer.map(|answer: Review<S>| answer.status)
    }
}

fn judgement(answer: Result<AccessStatus, Error>) -> Judgement {
    match answer {
        Ok(status) if status.allowed => Judgement::Allowed,
        Ok(status) if status.evaluation_error.is_empty() => Judgement::Denied,
        Err(error) if is(&error, StatusCode::UNAUTHORIZED) => Judgement::Refused,
        Err(error) if is_outage(&error) => Judgement::NoAnswer,
        Ok(_) | Err(_) => Judgement::Unclear,
    }
}

fn name_coverage(answer: Result<RulesStatus, Error>) -> NameCoverage {
    match answer {
        Ok(status) if !status.evaluation_error.is_empty() => {
            NameCoverage::Uncovered(status.evaluation_error)
        }
        Ok(status) if status.incomplete == Some(false) => NameCoverage::Covered,
        Ok(_) => NameCoverage::Uncovered("the list of rules is incomplete".to_owned()),
        Err(error) if is_refusal(&error) => NameCoverage::Uncovered(error.to_string()),
        Err(_) => NameCoverage::NoAnswer,
    }
}

/// Returns true if the API server answered with `code`.
fn is(error: &Error, code: StatusCode) -> bool {
    error
        .status()
        .is_some_and(|status| status.code == code.as_u16())
}

/// Returns true if the API server refuses to answer. It would probably refuse again.
fn is_refusal(error: &Error) -> bool {
    let is_too_many = is(error, StatusCode::TOO_MANY_REQUESTS);
    matches!(error, Error::Answer { .. }) && !is_too_many && !is_outage(error)
}

/// Returns true if the API server can't be reached, or can't answer. An overloaded API server (429)
/// can answer.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::Unreachable(_) | Error::Transport(_) | Error::InDoubt(_) | Error::Timeout(_) => true,
        Error::Answer { status, .. } => status.code >= 500,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::Status;

    use super::*;

    #[test]
    fn only_missing_answers_and_failures_of_the_server_are_an_outage() {
        let answer = |code| Error::Answer {
            status: Box::new(Status::failure(code, "", "")),
            retry_after: None,
        };
        for (error, expected) in [
            (Error::Unreachable("refused".into()), Judgement::NoAnswer),
            (Error::InDoubt("reset".into()), Judgement::NoAnswer),
            (Error::Timeout(REVIEW_TIMEOUT), Judgement::NoAnswer),
            (answer(500), Judgement::NoAnswer),
            (answer(503), Judgement::NoAnswer),
            (answer(401), Judgement::Refused),
            (answer(403), Judgement::Unclear),
            (answer(429), Judgement::Unclear),
            (Error::Decode("no JSON".into()), Judgement::Unclear),
            (Error::Credentials("none".to_owned()), Judgement::Unclear),
        ] {
            let text = error.to_string();
            assert_eq!(judgement(Err(error)), expected, "{text}");
        }
        let answer = |allowed, error: &str| AccessStatus {
            allowed,
            evaluation_error: error.to_owned(),
        };
        assert_eq!(judgement(Ok(answer(true, "x"))), Judgement::Allowed);
        assert_eq!(judgement(Ok(answer(false, ""))), Judgement::Denied);
        assert_eq!(judgement(Ok(answer(false, "x"))), Judgement::Unclear);
    }

    #[test]
    fn names_are_covered_only_if_the_list_of_rules_is_complete() {
        let uncovered = |text: &str| NameCoverage::Uncovered(text.to_owned());
        let incomplete = || uncovered("the list of rules is incomplete");
        // As kube-apiserver answers with RBAC alone, and with a webhook.
        let webhook = "webhook authorizer does not support user rule resolution";
        for (status, expected) in [
            (
                json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false}),
                NameCoverage::Covered,
            ),
            (
                json!({"incomplete": true, "evaluationError": webhook}),
                uncovered(webhook),
            ),
            (json!({"incomplete": true}), incomplete()),
            (
                json!({"incomplete": false, "evaluationError": "no such role"}),
                uncovered("no such role"),
            ),
            (json!({"evaluationError": "x"}), uncovered("x")),
            (json!({"allowed": true}), incomplete()),
            (json!({}), incomplete()),
        ] {
            let answer = serde_json::from_value(status.clone()).expect("a status");
            assert_eq!(name_coverage(Ok(answer)), expected, "{status}");
        }
        let answer = |code| Error::Answer {
            status: Box::new(Status::failure(code, "", "")),
            retry_after: None,
        };
        for (error, is_uncovered) in [
            (answer(401), true),
            (answer(403), true),
            (answer(404), true),
            (answer(429), false),
            (answer(503), false),
            (Error::Unreachable("refused".into()), false),
            (Error::Timeout(REVIEW_TIMEOUT), false),
            (Error::Decode("no JSON".into()), false),
            (Error::Credentials("none".to_owned()), false),
        ] {
            let text = error.to_string();
            let expected = if is_uncovered {
                uncovered(&text)
            } else {
                NameCoverage::NoAnswer
            };
            assert_eq!(name_coverage(Err(error)), expected, "{text}");
        }
    }
}
