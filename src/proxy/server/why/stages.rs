//! Takes a request through the stages, in their order, without doing anything for it.

use std::sync::Arc;

use kubefan_core::api::Status;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::asker::ExpectedCaller;
use super::explanation::{Change, ExpectedOutcome, ExplainedStage, Explanation, StageOutcome};
use crate::identity::Caller;
use crate::limit::Limit;
use crate::server::answers::rescue::Refused;
use crate::server::cached::dry_run::{Expected, Passed, Stopped, right_text};
use crate::server::cached::from_cache::Caches;
use crate::server::cached::miss::Miss;
use crate::server::decide::{ChangeKind, Decision, Read, Reason};
use crate::server::filters::refusal_reason;
use crate::server::request::{Exchange, Handshake, RequestInfo};
use crate::server::service::Server;
use crate::server::upstream::dry_run::ExpectedCall;

/// How the way of a request ends.
enum End {
    /// A cache answers, in JSON instead of the preferred type if `is_json_instead`.
    Hit {
        is_json_instead: bool,
        expected: Expected,
    },
    Forward {
        at: Passed,
        reason: Reason,
        limit: Option<Arc<Semaphore>>,
    },
    Refuse {
        at: Passed,
        refused: Refused,
    },
}

impl End {
    fn refuse(stage: &'static str, detail: impl Into<String>, refused: impl Into<Refused>) -> Self {
        Self::Refuse {
            at: Passed::new(stage, detail),
            refused: refused.into(),
        }
    }

    fn forward(stage: &'static str, detail: impl Into<String>, reason: Reason) -> Self {
        Self::Forward {
            at: Passed::new(stage, detail),
            reason,
            limit: None,
        }
    }
}

impl From<Stopped> for End {
    fn from(stopped: Stopped) -> Self {
        let (stage, detail) = (stopped.stage, stopped.detail);
        let at = Passed { stage, detail };
        match stopped.miss {
            Miss::Forward(reason) => Self::Forward {
                at,
                reason,
                limit: None,
            },
            Miss::ForwardLimited(reason, limit) => Self::Forward {
                at,
                reason,
                limit: Some(limit),
            },
            Miss::Absent(status) => Self::Refuse {
                at,
                refused: (*status).into(),
            },
            Miss::Reject(refused) => Self::Refuse { at, refused },
        }
    }
}

/// Returns which way the request of `exchange` would take now. Cancel safe.
pub(super) async fn explain(
    server: &Server,
    mut exchange: Box<Exchange>,
    caller: ExpectedCaller,
) -> Explanation {
    let mut passed = Vec::new();
    let planned = plan(server, &mut exchange, caller, &mut passed);
    let end = match planned {
        Err(end) => end,
        Ok((read, status)) => {
            let who = (&*exchange.info, &exchange.caller);
            let caches = &server.inner.caches;
            let end = end_of_read(caches, who, &read, status, &mut passed);
            let end = timeout(caches.request_timeout, end).await;
            end.unwrap_or_else(|_| {
                let detail = "the API server has not answered a question about the right in time";
                End::refuse("authorize", detail, Status::timeout())
            })
        }
    };
    explanation(server, &exchange, passed, end)
}

/// Passes the stages up to the decision. Returns the read that a cache may answer, and the Status that
/// it is refused with if its caller may do it.
fn plan(
    server: &Server,
    exchange: &mut Exchange,
    caller: ExpectedCaller,
    passed: &mut Vec<Passed>,
) -> Result<(Read, Option<Box<Status>>), End> {
    let request = &exchange.request;
    let head = (request.uri(), request.headers());
    if let Some(problem) = refusal_reason(server.inner.web_pages, request.version(), head) {
        let status = Status::failure(403, "Forbidden", format!("forbidden: {problem}"));
        return Err(End::refuse("web_pages", problem, status));
    }
    let checked = server.check_url(exchange);
    checked.map_err(|status| End::refuse("request", "the URL is too long", status))?;
    passed.push(Passed::new("request", request_text(&exchange.info)));
    exchange.caller = caller.map_err(|status| {
        let detail = status.message.clone();
        End::refuse("caller", detail, status)
    })?;
    passed.push(Passed::new("caller", caller_text(&exchange.caller)));
    let caches = &server.inner.caches;
    let share = caches
        .shares
        .check_request(&exchange.caller, &exchange.info);
    share.map_err(|limit| {
        End::refuse(
            "shares",
            "the user has too many requests in progress",
            limit,
        )
    })?;
    let handshake = Handshake::of(exchange.request.headers());
    let (read, status) = match server.decide(exchange, handshake.as_ref()) {
        Decision::Reject(status) => {
            let detail = status.message.clone();
            return Err(End::refuse("decide", detail, status));
        }
        Decision::Forward(reason) => return Err(End::forward("decide", "", reason)),
        Decision::Read(read) => (read, None),
        Decision::RejectAuthorized(read, status) => (read, Some(status)),
    };
    passed.push(Passed::new("decide", "a cache may answer"));
    Ok((read, status))
}

/// Passes the stages for a read.
async fn end_of_read(
    caches: &Caches,
    (info, caller): (&RequestInfo, &Caller),
    read: &Read,
    status: Option<Box<Status>>,
    passed: &mut Vec<Passed>,
) -> End {
    let dry_run = match status {
        None => caches.dry_run((info, caller), read, passed).await,
        Some(status) => match caches.dry_access((info, caller), read, passed).await {
            Ok(()) => return End::refuse("decide", status.message.clone(), *status),
            Err(stopped) => Err(stopped),
        },
    };
    match dry_run {
        Ok(expected) => End::Hit {
            is_json_instead: read.prefers_other_type,
            expected,
        },
        Err(stopped) => stopped.into(),
    }
}

/// Returns the explanation of the request of `exchange`, which has passed some stages to this end.
fn explanation(server: &Server, exchange: &Exchange, passed: Vec<Passed>, end: End) -> Explanation {
    let passed = passed.into_iter();
    let mut stages: Vec<_> = passed.map(|at| explained(at, StageOutcome::Pass)).collect();
    let of_request = of_request(exchange);
    let explanation = match end {
        End::Hit { .. } if !has_seat(server, exchange) => {
            let at = Passed::new(
                "in_flight",
                "the user has too many GETs and LISTs in flight",
            );
            stages.push(explained(at, StageOutcome::Refuse));
            refused(of_request, Limit::RequestsInFlight.into())
        }
        End::Hit {
            is_json_instead,
            expected,
        } => hit(of_request, is_json_instead, expected),
        End::Refuse { at, refused: why } => {
            stages.push(explained(at, StageOutcome::Refuse));
            refused(of_request, why)
        }
        End::Forward {
            mut at,
            reason,
            limit,
        } => {
            if at.detail.is_empty() {
                at.detail = reason.meaning().to_owned();
            }
            stages.push(explained(at, StageOutcome::Forward));
            let upstream = &server.inner.upstream;
            let call = upstream.dry_run(exchange, reason, limit.as_ref());
            stages.push(forward_stage(&call));
            match call {
                Err(why) => refused(of_request, why),
                Ok(call) => forwarded(of_request, call, reason),
            }
        }
    };
    Explanation {
        stages,
        ..explanation
    }
}

/// Returns the stage after the decision to forward a request.
fn forward_stage(call: &Result<ExpectedCall, Refused>) -> ExplainedStage {
    match call {
        Ok(call) => explained(call_text(*call), StageOutcome::Pass),
        Err(_) => {
            let at = Passed::new("forward", "kubefan would not forward it now");
            explained(at, StageOutcome::Refuse)
        }
    }
}

/// Returns an explanation that has only the request of `exchange`, as one that is forwarded.
fn of_request(exchange: &Exchange) -> Explanation {
    let url = exchange.request.uri().path_and_query();
    let known = exchange.caller.known();
    Explanation {
        method: exchange.request.method().to_string(),
        path: url.map(ToString::to_string).unwrap_or_default(),
        user: known.map(|known| known.user().name.clone()),
        stages: Vec::new(),
        outcome: ExpectedOutcome::Forward,
        reason: None,
        meaning: None,
        otherwise: None,
        status: None,
        message: None,
        changes: Vec::new(),
    }
}

/// Returns `explanation` of a request that a cache answers.
fn hit(explanation: Explanation, is_json_instead: bool, expected: Expected) -> Explanation {
    let json = is_json_instead.then_some(Reason::MediaType);
    let otherwise = expected.otherwise;
    // A read that names a version, or any, needs no call.
    let needs_call = otherwise.map(|_| Reason::Consistent);
    Explanation {
        outcome: ExpectedOutcome::Hit,
        reason: json.map(|reason| reason.name().to_owned()),
        otherwise: otherwise.map(|reason| reason.name().to_owned()),
        changes: json.into_iter().chain(needs_call).map(change).collect(),
        ..explanation
    }
}

/// Returns `explanation` of a request that kubefan refuses.
fn refused(explanation: Explanation, refused: Refused) -> Explanation {
    let changes = limit_change(&refused).into_iter().collect();
    let status = refused.status();
    Explanation {
        outcome: ExpectedOutcome::Refuse,
        status: Some(status.code),
        message: Some(status.message),
        changes,
        ..explanation
    }
}

/// Returns `explanation` of a request that is forwarded for `reason`, or gets a kept refusal.
fn forwarded(explanation: Explanation, call: ExpectedCall, reason: Reason) -> Explanation {
    let is_kept = call == ExpectedCall::KeptRefusal;
    Explanation {
        outcome: if is_kept {
            ExpectedOutcome::Hit
        } else {
            ExpectedOutcome::Forward
        },
        status: is_kept.then_some(403),
        reason: Some(reason.name().to_owned()),
        meaning: Some(reason.meaning().to_owned()),
        changes: vec![change(reason)],
        ..explanation
    }
}

fn explained(at: Passed, outcome: StageOutcome) -> ExplainedStage {
    ExplainedStage {
        stage: at.stage.to_owned(),
        outcome,
        detail: at.detail,
    }
}

fn has_seat(server: &Server, exchange: &Exchange) -> bool {
    let in_flight = &server.inner.caches.in_flight;
    in_flight.has_room(&exchange.info, &exchange.holder())
}

/// Returns what makes a cache answer a request that is forwarded for `reason`.
fn change(reason: Reason) -> Change {
    let advice = reason.advice();
    Change {
        kind: advice.kind,
        text: advice.text.to_owned(),
    }
}

/// Returns what helps against a limit, if that is why a request is refused.
fn limit_change(refused: &Refused) -> Option<Change> {
    let name = refused.limit()?.name();
    Some(Change {
        kind: ChangeKind::Time,
        text: format!("wait, or have fewer requests at a time: the limit {name} is reached"),
    })
}

fn request_text(info: &RequestInfo) -> String {
    if info.is_resource_request {
        right_text(info)
    } else {
        format!("{} of a path that names no resource", info.verb.as_str())
    }
}

fn caller_text(caller: &Caller) -> String {
    match caller {
        Caller::Trusted => "callers are not authenticated; kubefan's rights count".to_owned(),
        Caller::Known(known) => format!("user {:?}", known.user().name),
        Caller::Impersonating | Caller::Unnamed(_) => {
            "it acts as another user, or only the API server can read its token".to_owned()
        }
        Caller::Unknown | Caller::Refused => {
            "it has credentials that only the API server can judge, or none".to_owned()
        }
    }
}

fn call_text(call: ExpectedCall) -> Passed {
    match call {
        ExpectedCall::Sent => Passed::new("forward", "the API server answers"),
        ExpectedCall::WithEtag => Passed::new(
            "documents",
            "the API server is asked whether the document that kubefan remembers is current",
        ),
        ExpectedCall::KeptRefusal => Passed::new(
            "forbidden",
            "the API server has refused this read some seconds ago; its 403 is repeated",
        ),
    }
}
