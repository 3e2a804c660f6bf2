//! The path of a request: every stage from the client's request to the answer.
//!
//! A [`Server`] is the service that `net` calls for each request. The request passes the stages
//! below from top to bottom, each at most once. `decide` chooses between three ways: a cache
//! answers (`Read`), the API server answers (`Forward`), or kubefan refuses (`Reject`).
//!
//! ```text
//! module      gets                         returns
//! filters/    the `Exchange`               the `Answer` of the stages below, counted and logged
//!                                          (trace), compressed (gzip), or a 500 if one of them
//!                                          panicked (recover); a 403 if a foreign web page may
//!                                          have sent the request (web_pages)
//! request/    method, URL, headers         `RequestInfo` (verb, resource, name) and `Facts`
//! (identity)  headers, certificate         the `Caller`, or a refusal
//! shares      the caller, `RequestInfo`    the place among the requests of the caller's user, held
//!                                          until the answer was sent, or a 429
//! decide      `Facts`, discovery           `Decision`: Reject(Status), Forward(Reason), Read(plan)
//!
//! only for Read:
//! access      the caller, `RequestInfo`    the attributes for the API server's authorizers, which
//!                                          must allow the read before anything is started for it
//! acquire     the plan                     the informer that can answer, or a `Miss`; starts it
//!                                          and waits for it if necessary
//! tables      the plan, the informer       the collection that shows objects as rows of a Table,
//!                                          if the client asks for one; otherwise the informer
//! sessions/   the caller, the plan         what the user's session needs, if the resource has sessions
//! crowds      the caller, the plan         the place of a read among those that wait, held until the
//!                                          head of its answer is there
//! prove       the plan, the informer       the proof that the cache is fresh, if one is needed
//! in_flight   the verb, the caller         a seat that is held until the answer was sent, or a
//!                                          429 if the user holds too many; also for Forward
//! shares      the caller, the plan         the user's share of what few watches can have, or a 429
//! read/       plan, collection, proof      the answer of a GET, LIST or WATCH, or a `Miss`
//! deliver/    an answer's parts or stream  its body: indentation, bursts, gzip, WebSockets
//!
//! for Forward, and for a Read that the cache missed:
//! forbidden   the request, the caller      the API server's 403 of some seconds ago, if this user
//!                                          got one for an equal request
//! documents/  the request                  the `ETag` of the discovery or OpenAPI document that is
//!                                          remembered, and its bytes after a 304 or in an outage
//! forward/    the request                  the API server's answer; identical reads share a call
//! sessions/   the answer                   the answer, after the user's session has noted what it shows
//!
//! for every error of a stage:
//! rescue      a `Refused`                  the response in a format that the client accepts
//!
//! for every request:
//! judged_upstream  the answer's status     nothing; counts wrong credentials, and closes HTTP/2
//!                                          connections on which they, or none, are sent
//! outcome     the way that was taken       `Outcome`, a field of the `Answer`, for trace
//! record      what all stages found out    the `Record`, made by trace; metrics, the log, the audit
//!                                          log, the access log, the bill, the header `Cache-Status`
//!                                          and the spans of a recorded request are made from it
//! ```
//!
//! `service` passes a request through the stages up to the decision, `cached/`'s `Caches` through
//! the stages for Read, and `upstream/`'s `Upstream` through the stages for Forward. What a stage
//! finds out is a field of the `Exchange`, or a return value. `held` has everything that an answer
//! holds until it was sent.
//!
//! `acquire`, `prove` and `read/` are in `cached/`; `forbidden`, `documents/`, `forward/` and
//! `judged_upstream` in `upstream/`; `crowds`, `in_flight` and `shares` in `limits/`; `answer`, `held`,
//! `outcome`, `record` and `rescue` in `answers/`, with the `consumers` of records. An `ending` is in the
//! body of an answer, if a consumer wants its record when all of the answer was sent.
//!
//! Modules beside the path: `admin` serves the second listener (probes, metrics, the admin API);
//! `why` says there which way a request would take, by the decisions of the stages
//! (`cached/dry_run`, `upstream/dry_run`); `collection` is the trait of the collections that answer
//! reads;
//! `authoritative` answers reads of a collection that is itself the source of truth, such as the
//! simulator's; `miss` says why a cache gave no answer; `startup` answers while kubefan waits for the
//! API server, before there is a `Server`.
//!
//! # Errors
//!
//! Stages return errors as values: a [`Reason`] to forward, a [`Miss`], or a [`Refused`], which is
//! a Status or a [`Limit`](crate::limit::Limit). [`Server`] forwards the request, or refuses it.
//! Only `rescue` turns a Status or a limit into a response and formats an upstream error; no other
//! stage builds an error response. There is one exception: a WATCH that has started, or that must
//! fail like a started one, gets its error as an ERROR event in its stream (`cached/read/watch.rs`,
//! `deliver/watch_body.rs`). Services never return an error to `net`: their error type is
//! [`Infallible`](std::convert::Infallible).
//!
//! # What never happens
//!
//! - A later stage never calls an earlier one, and gets no callback. Results flow back only as
//!   return values. A body is polled by the connection and reads from the cache; the cache's wake
//!   is the only signal in the other direction.
//! - `request` and `decide` do no I/O and start nothing. A caller that kubefan refuses causes no
//!   discovery, no informer and no call to the API server.
//! - A cached answer is never a mixture: GET and LIST use exactly one snapshot. If a cache cannot
//!   answer, the request is forwarded, and it never returns to a cache.

mod access;
mod admin;
mod answers;
mod cached;
mod config;
mod decide;
mod deliver;
mod filters;
mod limits;
mod request;
mod service;
mod startup;
mod tables;
mod upstream;
mod why;

pub use admin::{Admin, EffectiveSetting, SettingOrigin};
pub(crate) use answers::consumers::Consumers;
pub use answers::outcome::{Call, Forwarded, Hit, Outcome, UsedProof};
pub(crate) use answers::rescue::with_causes;
pub use answers::rescue::{Refused, answer, plain_text, respond};
pub use cached::authoritative::read_authoritative;
pub use cached::collection::Collection;
pub use cached::miss::Miss;
pub use config::{Config, Metrics};
pub use decide::{ChangeKind, Reason};
#[cfg(any(test, feature = "test-support"))]
pub use deliver::without_jitter;
pub use filters::{Records, RequestMetrics, WebPageRules};
/// The body of a request or of an answer.
pub use kubefan_core::body::Body;
/// Boxes any body of bytes.
pub use kubefan_core::body::boxed;
/// A body with all bytes in memory.
pub use kubefan_core::body::full;
pub use limits::shares::UserLimits;
pub use request::{RequestInfo, ShardSelectors, Verb};
pub use service::{Server, with_filters};
pub use startup::Startup;
pub use why::{Change, ExpectedOutcome, ExplainedStage, Explanation, StageOutcome};
