//! The record of a request: each fact once, for everything that counts, logs or describes requests.
//!
//! `trace` notes the [`Arrival`]. The stages add what they find out to the `Exchange` or to the
//! `Answer`. When the head of the answer is known, `trace` makes the [`Record`], which does not
//! change any more. Only what [`Consumers`](super::consumers::Consumers) want it for holds it until
//! the body was sent, and gets the [`Ended`] with it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode, Uri, Version};
use jiff::Timestamp;
use kubefan_core::api::GroupVersionResource;
use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use super::answer::Waits;
use super::cached_read::CachedRead;
use super::outcome::Outcome;
use crate::bill::CpuAccount;
use crate::identity::{KnownCaller, User};
use crate::server::request::RequestInfo;
use crate::traces::{Parent, RequestTrace};

/// What is known of a request when it arrives.
pub(in crate::server) struct Arrival {
    /// Verb, resource, namespace, name and selectors, as the client wrote them.
    pub(in crate::server) info: Arc<RequestInfo>,
    pub(in crate::server) method: Method,
    pub(in crate::server) uri: Uri,
    pub(in crate::server) protocol: Version,
    /// The first `User-Agent`. Clients can write anything there.
    pub(in crate::server) user_agent: Option<HeaderValue>,
    /// The client's audit ID, or a new one.
    pub(in crate::server) audit_id: HeaderValue,
    /// The address of the client, or of the proxy in front of it.
    pub(in crate::server) peer: IpAddr,
    /// When the head of the request had arrived.
    pub(in crate::server) began: Instant,
    /// The same moment by the clock of the machine.
    pub(in crate::server) time: Timestamp,
    /// `None` if no log needs them.
    pub(in crate::server) headers: Option<Box<LoggedHeaders>>,
    /// Set if the request is recorded.
    pub(in crate::server) trace: Option<Arc<RequestTrace>>,
    /// The CPU time of the connection; `None` if it is not measured.
    pub(in crate::server) cpu: Option<Arc<CpuAccount>>,
}

/// Headers of a request that are only logged. Clients can write anything there.
pub(in crate::server) struct LoggedHeaders {
    pub(in crate::server) forwarded_for: Option<HeaderValue>,
    pub(in crate::server) real_ip: Option<HeaderValue>,
    /// The client's span, if it has one.
    pub(in crate::server) trace_parent: Option<Parent>,
}

/// A request, and the head of its answer.
pub(in crate::server) struct Record {
    pub(in crate::server) arrival: Arrival,
    pub(in crate::server) outcome: Outcome,
    /// The resource. `None` for a path that is no resource, and if discovery does not have the
    /// resource: clients can't create values of this field.
    pub(in crate::server) resource: Option<GroupVersionResource>,
    /// The caller, if kubefan has determined its user.
    pub(in crate::server) caller: Option<Arc<KnownCaller>>,
    pub(in crate::server) waits: Waits,
    /// What the read of a cache means for the bill; `None` if no cache has answered.
    pub(in crate::server) read: Option<CachedRead>,
    /// The status that the client gets.
    pub(in crate::server) status: StatusCode,
    /// From the arrival to the head of the answer.
    pub(in crate::server) time_to_head: Duration,
}

/// How the body of an answer ended.
#[derive(Debug)]
pub(in crate::server) struct Ended {
    /// Bytes of the body that were passed to the connection, compressed if the client gets them
    /// compressed. Of an upgraded connection that was forwarded: the bytes from the API server, if
    /// one of its sides ended it.
    pub(in crate::server) bytes: u64,
    /// From the arrival of the request to this end.
    pub(in crate::server) lasted: Duration,
    pub(in crate::server) end: End,
}

/// Why the body of an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) enum End {
    /// It was complete. A watch is complete at its timeout, after an error in its stream, and when
    /// kubefan shuts down.
    Complete,
    /// The connection or the stream ended before: usually the client closed it.
    ClientGone,
    /// kubefan ended it because its caller has lost the right to it.
    RightLost,
    /// kubefan broke it off, because its client read too slowly.
    TooSlow,
    /// It failed, as the text says: memory was short, or the API server broke off its answer.
    Failed(String),
}

impl Arrival {
    /// Returns the query for a log. For programs behind the API server's proxy it is empty, because
    /// their queries may contain secrets.
    pub(in crate::server) fn printable_query(&self) -> &str {
        printable_query(&self.uri)
    }
}

impl End {
    /// Returns the name of the end, as in the access log and in spans.
    pub(in crate::server) fn name(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientGone => "client_gone",
            Self::RightLost => "right_lost",
            Self::TooSlow | Self::Failed(_) => "failed",
        }
    }

    /// Returns the error; empty if the answer did not fail.
    pub(in crate::server) fn error(&self) -> &str {
        match self {
            Self::TooSlow => "the client reads too slowly",
            Self::Failed(error) => error,
            Self::Complete | Self::ClientGone | Self::RightLost => "",
        }
    }
}

impl Record {
    /// Returns the caller's user, if kubefan has determined it.
    pub(in crate::server) fn user(&self) -> Option<&User> {
        self.caller.as_ref().map(|caller| caller.user())
    }
}

#[cfg(test)]
impl Record {
    /// Creates the record of a GET of `target` that has arrived now, and was answered at once with
    /// 200.
    pub(super) fn for_tests(target: &str, outcome: Outcome) -> Self {
        let uri: Uri = target.parse().expect("a URI");
        let query = uri.query().unwrap_or_default();
        let info = RequestInfo::parse(&Method::GET, uri.path(), query);
        Self {
            arrival: Arrival {
                info: Arc::new(info),
                method: Method::GET,
                uri,
                protocol: Version::HTTP_2,
                user_agent: Some(HeaderValue::from_static("agent")),
                audit_id: HeaderValue::from_static("mine"),
                peer: IpAddr::from([10, 0, 0, 9]),
                began: Instant::now(),
                time: Timestamp::UNIX_EPOCH,
                headers: None,
                trace: None,
                cpu: None,
            },
            outcome,
            resource: Some(GroupVersionResource::new("", "v1", "pods")),
            caller: None,
            waits: Waits::default(),
            read: None,
            status: StatusCode::OK,
            time_to_head: Duration::ZERO,
        }
    }
}

fn printable_query(uri: &Uri) -> &str {
    // The API server decodes the path before it reads it.
    let path = percent_decode_str(uri.path()).decode_utf8_lossy();
    if path.split('/').any(|segment| segment == "proxy") {
        ""
    } else {
        uri.query().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_a_proxied_request_is_not_printed_however_its_path_is_written() {
        for (uri, expected) in [
            ("/api/v1/pods?limit=1", "limit=1"),
            ("/api/v1/namespaces/a/pods/b/proxy/?pw=x", ""),
            ("/api/v1/namespaces/a/pods/b/%70roxy/?pw=x", ""),
            ("/%70%72oxy/?pw=x", ""),
        ] {
            let uri = uri.parse().expect("a URI");
            assert_eq!(printable_query(&uri), expected, "{uri}");
        }
    }
}
