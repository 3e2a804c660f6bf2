//! Dry run: what the stages for a read would find out, without the read. They start, send, count and
//! note nothing, except that the API server may be asked about the right of the caller.
//!
//! The decisions are those of the stages themselves. What only a call to the API server can show is
//! left open.

use std::sync::Arc;

use kubefan_core::api::ObjectKey;
use kubefan_core::informer::{CacheName, Informer, Proof};
use tokio::time::Instant;

use super::acquire::{SYNC_WAIT, catch_up, peek};
use super::from_cache::Caches;
use super::miss::Miss;
use super::prove::{Way, is_provable_in_crowd, way};
use super::read::{check_not_older_than, snapshot_for};
use crate::identity::{Caller, Verdict};
use crate::server::decide::{Need, Plan, Read, Reason};
use crate::server::request::RequestInfo;

/// A stage that a request would pass.
#[derive(Debug)]
pub(in crate::server) struct Passed {
    pub(in crate::server) stage: &'static str,
    pub(in crate::server) detail: String,
}

/// The stage that a read would not pass.
#[derive(Debug)]
pub(in crate::server) struct Stopped {
    pub(in crate::server) stage: &'static str,
    pub(in crate::server) detail: String,
    pub(in crate::server) miss: Miss,
}

/// What is left open about a read that a cache would answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Expected {
    /// The read is forwarded for this reason if the API server does not prove the cache in time.
    pub(in crate::server) otherwise: Option<Reason>,
}

/// The proof that a read would get.
enum Proving {
    /// This one, or none, without a call to the API server.
    Has(Option<Proof>),
    /// One that is not there yet. This is left open.
    Open(Expected),
}

impl Stopped {
    fn new(stage: &'static str, detail: impl Into<String>, miss: impl Into<Miss>) -> Self {
        Self {
            stage,
            detail: detail.into(),
            miss: miss.into(),
        }
    }
}

impl Passed {
    pub(in crate::server) fn new(stage: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { stage, detail }
    }
}

impl Caches {
    /// Returns what is left open if a cache would answer `read`. Adds the stages that it would pass
    /// to `passed`. Waits for a version as the read does, at most 100 ms.
    ///
    /// # Errors
    /// The stage that the read would not pass.
    pub(in crate::server) async fn dry_run(
        &self,
        (info, caller): (&RequestInfo, &Caller),
        read: &Read,
        passed: &mut Vec<Passed>,
    ) -> Result<Expected, Stopped> {
        let asked_at = Instant::now();
        self.dry_access((info, caller), read, passed).await?;
        let Some(informer) = self.dry_acquire((info, caller), read, passed)? else {
            let otherwise = unsynced_reason(read);
            return Ok(Expected { otherwise });
        };
        catch_up(informer.reader(), read).await;
        self.dry_tables(read, passed)?;
        let proving = self.dry_prove(caller, read, &informer, asked_at, passed)?;
        dry_read(read, &proving, &informer, passed)?;
        Ok(match proving {
            Proving::Has(_) => Expected::default(),
            Proving::Open(expected) => expected,
        })
    }

    /// Finds out whether the caller may read.
    ///
    /// # Errors
    /// The read, if a cache must not answer the caller.
    pub(in crate::server) async fn dry_access(
        &self,
        (info, caller): (&RequestInfo, &Caller),
        read: &Read,
        passed: &mut Vec<Passed>,
    ) -> Result<(), Stopped> {
        let right = right_text(info);
        let verdict = self.may_read(info, caller, read).await;
        let verdict = verdict.map_err(|miss| {
            let is_get = matches!(read.plan, Plan::Get { .. });
            let detail = match &miss {
                Miss::Forward(_) if is_get => format!(
                    "no permission to {right} is remembered; a GET is not asked about, because its \
                     answer from the API server shows the right"
                ),
                Miss::Forward(_) => format!("the API server has not permitted to {right}"),
                _ => "too many questions about rights wait for the API server".to_owned(),
            };
            Stopped::new("authorize", detail, miss)
        })?;
        let detail = match (caller, verdict) {
            (Caller::Trusted, _) => "callers are not authenticated".to_owned(),
            (_, Verdict::Stale) => format!(
                "the API server does not answer, and has permitted to {right} before; this counts"
            ),
            _ => format!("the API server permits to {right}"),
        };
        passed.push(Passed::new("authorize", detail));
        Ok(())
    }

    /// Finds the informer, if it is ready. Returns `None` if the read would wait for its first list.
    fn dry_acquire(
        &self,
        (info, caller): (&RequestInfo, &Caller),
        read: &Read,
        passed: &mut Vec<Passed>,
    ) -> Result<Option<Arc<Informer>>, Stopped> {
        let may_start = self.may_start(info, caller, read);
        let name = format!("{} {}", read.spec.resource.gvr, read.spec.format.name());
        let found = peek(&self.informers, &self.rest_mapper, read, may_start);
        let found = found.map_err(|reason| {
            let none = format!("no cache of {name} is ready");
            let detail = match reason {
                Reason::NotCached => format!("{none}, and this read starts none"),
                Reason::PastState => format!("{none}, and a new one would not have the version"),
                Reason::Forbidden => {
                    "the API server has refused kubefan the list or the watch".to_owned()
                }
                Reason::NoSuchFormat => "the API server has refused the format (406)".to_owned(),
                _ => "no cache can be started now".to_owned(),
            };
            Stopped::new("acquire", detail, reason)
        })?;
        let waits = match &found {
            Some(informer) if informer.reader().is_ready() => {
                let detail = format!("the cache of {}", CacheName::of(informer));
                passed.push(Passed::new("acquire", detail));
                return Ok(found);
            }
            Some(_) => format!("the cache of {name} is filling"),
            None => format!("a cache of {name} would be started"),
        };
        let late = match unsynced_reason(read) {
            Some(_) => "it is forwarded",
            None => "the answer is 429",
        };
        let seconds = SYNC_WAIT.as_secs();
        let detail =
            format!("{waits}; the read waits {seconds} s for the first list, and then {late}");
        passed.push(Passed::new("acquire", detail));
        Ok(None)
    }

    fn dry_tables(&self, read: &Read, passed: &mut Vec<Passed>) -> Result<(), Stopped> {
        if !read.representation.view.is_table() {
            return Ok(());
        }
        let admission = self.tables.admission(read);
        admission.map_err(|reason| {
            let detail = "the API server prints the Table";
            Stopped::new("tables", detail, reason)
        })?;
        passed.push(Passed::new(
            "tables",
            "kubefan prints this kind: a comparison with the API server found it equal",
        ));
        Ok(())
    }

    /// Finds out which proof the read would get.
    fn dry_prove(
        &self,
        caller: &Caller,
        read: &Read,
        informer: &Arc<Informer>,
        asked_at: Instant,
        passed: &mut Vec<Passed>,
    ) -> Result<Proving, Stopped> {
        let is_lone = self.crowds.would_be_lone(read, informer);
        let session = self.sessions.peek(caller, read);
        let proven_since = match &session {
            None => asked_at,
            Some(session) => {
                let (proven_since, is_behind) = self.sessions.proven_since(session, informer);
                let detail = if is_behind {
                    "the cache is behind what the user has seen; the read waits a moment for it"
                } else {
                    "the cache has the version that the user has seen"
                };
                passed.push(Passed::new("sessions", detail));
                proven_since
            }
        };
        let (proving, detail) = proving(read, (proven_since, is_lone), informer)?;
        passed.push(Passed::new("prove", detail));
        Ok(proving)
    }
}

/// Returns the proof that `read` would get from `informer`, and what the stage says about it.
fn proving(
    read: &Read,
    (proven_since, is_lone): (Instant, bool),
    informer: &Informer,
) -> Result<(Proving, String), Stopped> {
    let stopped = |detail: &str, miss: Miss| Err(Stopped::new("prove", detail, miss));
    match way(read, (proven_since, is_lone), informer) {
        Way::WithoutCall(None) if read.need == Need::MostRecent => stopped(
            "the API server is asked for the object itself, which costs no more than a proof",
            Reason::Consistent.into(),
        ),
        Way::WithoutCall(None) => {
            let detail = "the read names a version, or any, so it needs no proof".to_owned();
            Ok((Proving::Has(None), detail))
        }
        Way::WithoutCall(Some(proof)) => {
            let detail = format!("by the freshness policy ({})", proof.method.name());
            Ok((Proving::Has(Some(proof)), detail))
        }
        Way::InCrowd if !is_provable_in_crowd(read, informer) => stopped(
            "no proof for a crowd of GETs can include the object",
            Reason::Consistent.into(),
        ),
        Way::InCrowd => Ok(asks(
            "a barrier for a crowd of GETs",
            Some(Reason::Consistent),
        )),
        Way::Soon => Ok(asks("a barrier", Some(Reason::Consistent))),
        Way::Prove(request, _) if informer.is_isolated(&request.selection) => stopped(
            "the cache and the API server lastingly have different objects",
            match read.plan {
                Plan::Get { .. } => Reason::Unproven.into(),
                _ => Miss::lasting(Reason::CacheDiffers, &read.plan, informer),
            },
        ),
        Way::Prove(..) if !informer.needs_call(proven_since) => {
            let detail = "by an earlier proof, or by the cache's own list".to_owned();
            Ok((Proving::Open(Expected::default()), detail))
        }
        Way::Prove(..) => {
            let otherwise = unproven_reason(read, informer);
            Ok(asks("a barrier or a verification list", otherwise))
        }
    }
}

/// Returns the proof by `call`, and what the stage says about it.
fn asks(call: &str, otherwise: Option<Reason>) -> (Proving, String) {
    let detail = format!("{call} would be requested from the API server");
    (Proving::Open(Expected { otherwise }), detail)
}

/// Returns the reason why `read` is forwarded if its proof by a call fails; `None` if the answer is
/// an error then.
fn unproven_reason(read: &Read, informer: &Informer) -> Option<Reason> {
    let is_costly = informer.reader().shares_versions();
    match (&read.plan, read.need) {
        (_, Need::NotOlderThan(_) | Need::At(_)) => Some(Reason::AheadOfCache),
        (_, Need::MostRecent) if is_costly => Some(Reason::Consistent),
        (Plan::Watch { .. }, _) => None,
        _ => Some(Reason::Unproven),
    }
}

/// Returns the reason why `read` is forwarded if the first list takes too long; `None` if the answer
/// is 429 then.
fn unsynced_reason(read: &Read) -> Option<Reason> {
    let is_list = matches!(read.plan, Plan::List { .. });
    (is_list && read.need == Need::MostRecent).then_some(Reason::Unproven)
}

/// Checks that the cache of `informer` has what `read` needs, as far as it is known before a proof.
fn dry_read(
    read: &Read,
    proving: &Proving,
    informer: &Informer,
    passed: &mut Vec<Passed>,
) -> Result<(), Stopped> {
    let reader = informer.reader();
    let snapshot = match (proving, &read.plan) {
        (Proving::Has(None), Plan::Watch { .. }) => {
            let applied = reader.applied().ok_or(Reason::NotCached);
            let reached = applied.and_then(|applied| check_not_older_than(read.need, applied));
            reached.and_then(|()| reader.snapshot().ok_or(Reason::NotCached))
        }
        (Proving::Has(Some(_)) | Proving::Open(_), Plan::Watch { .. }) | (Proving::Open(_), _) => {
            reader.snapshot().ok_or(Reason::NotCached)
        }
        (Proving::Has(proof), _) => snapshot_for(read, proof.as_ref(), reader),
    };
    let snapshot = snapshot.map_err(|reason| {
        let detail = match reason {
            Reason::AheadOfCache => "the cache has not reached the version",
            Reason::PastState => "the cache does not have the state at exactly this version",
            _ => "the cache has just been closed",
        };
        Stopped::new("read", detail, reason)
    })?;
    let version = snapshot.resource_version();
    let mut detail = format!("the cache is at resource version {version}");
    if let Plan::Get { name, is_in_scope } = &read.plan
        && snapshot
            .get(&ObjectKey::new(read.namespace.as_deref(), name))
            .is_none()
    {
        if !is_in_scope {
            let detail = "the cache does not have the object, and it may exist outside of what the \
                          configuration lets it have";
            return Err(Stopped::new("read", detail, Reason::OutOfScope));
        }
        detail += ", and does not have the object: the answer is 404";
    }
    passed.push(Passed::new("read", detail));
    Ok(())
}

/// Returns the right that the request of `info` needs, such as `list pods in namespace shop`.
pub(in crate::server) fn right_text(info: &RequestInfo) -> String {
    let mut text = format!("{} {}", info.verb.as_str(), info.resource);
    for (before, part) in [
        (".", &info.group),
        ("/", &info.subresource),
        (" ", &info.name),
        (" in namespace ", &info.namespace),
    ] {
        if !part.is_empty() {
            text.push_str(before);
            text.push_str(part);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn a_right_is_named_as_a_role_names_it() {
        for (path, query, expected) in [
            ("/api/v1/pods", "", "list pods"),
            (
                "/apis/apps/v1/namespaces/n/deployments",
                "watch=1",
                "watch deployments.apps in namespace n",
            ),
            (
                "/api/v1/namespaces/n/pods/p/log",
                "",
                "get pods/log p in namespace n",
            ),
        ] {
            let info = RequestInfo::parse(&Method::GET, path, query);
            assert_eq!(right_text(&info), expected);
        }
    }
}
