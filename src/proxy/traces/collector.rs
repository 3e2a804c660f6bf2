//! The collector, to which spans are sent.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::uri::{InvalidUriParts, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use kubefan_core::upstream::{
    Client, ClientConfig, ConnectError, DedicatedConnection, HttpVersion,
};
use kubefan_core::{body, upstream};
use tokio::time::timeout;
use uuid::Uuid;

use super::config::Config;
use super::otlp;
use super::span::Value;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const OUR_USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("kubefan/", env!("CARGO_PKG_VERSION")));
/// The longest answer, in bytes, that is read. Collectors answer with a few bytes.
const MAX_ANSWER: usize = 64 << 10;
/// How long sending a batch may take, up to the end of the answer: the default of OpenTelemetry's
/// exporters.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The collector of one configuration.
pub(super) struct Collector {
    client: Client,
    target: PathAndQuery,
    headers_file: Option<PathBuf>,
    /// What describes this kubefan. The id distinguishes replicas.
    pub(super) resource: [(&'static str, Value); 3],
}

/// Why spans can't be sent to any collector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TracesError {
    /// The URL has no scheme or no host.
    #[error("the URL of the collector of traces can't be used")]
    Endpoint(#[from] InvalidUriParts),
    /// The server or its certificate authorities can't be used.
    #[error("the collector of traces can't be used")]
    Client(#[from] ConnectError),
    /// The file of headers can't be used.
    #[error("the file of headers for the collector of traces can't be used")]
    Headers(#[from] HeadersError),
}

/// Why a file of headers can't be used. The text has nothing of the file's content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadersError {
    /// It can't be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// A line is no header.
    #[error("{}: line {line} is not a header such as `Name: value`", .path.display())]
    Malformed {
        /// The path of the file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
}

/// Why spans were not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("it answered {code}: {message}")]
    Answer {
        code: u16,
        message: String,
        retry_after: Option<Duration>,
    },
    #[error("no connection, or it broke")]
    Connection(#[source] body::BoxError),
    #[error("it did not answer within {0:?}")]
    Timeout(Duration),
    #[error("the request or its answer is invalid")]
    Invalid(#[source] upstream::Error),
    #[error("no headers")]
    Headers(#[from] HeadersError),
}

impl Collector {
    pub(super) async fn new(config: Config) -> Result<Self, TracesError> {
        let mut server = config.endpoint.into_parts();
        let target = server
            .path_and_query
            .replace(PathAndQuery::from_static("/"));
        let client = Client::connect(ClientConfig {
            server: Some(Uri::from_parts(server)?.to_string()),
            ca_file: config.ca_file,
            ..ClientConfig::default()
        });
        let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let collector = Self::of(client.await?, target, config.headers_file);
        // A file that can't be used is reported at the start.
        collector.headers().await?;
        Ok(collector)
    }

    /// Creates the collector that `client` reaches.
    pub(super) fn of(client: Client, target: PathAndQuery, headers_file: Option<PathBuf>) -> Self {
        Self {
            client,
            target,
            headers_file,
            resource: [
                ("service.name", "kubefan".into()),
                ("service.version", env!("CARGO_PKG_VERSION").into()),
                ("service.instance.id", Uuid::new_v4().to_string().into()),
            ],
        }
    }

    /// Returns the collector's URL without the path, for logs.
    pub(super) fn server(&self) -> &str {
        self.client.server()
    }

    /// Sends an encoded request over `connection`, or over a new connection, which stays there.
    /// Returns the number of spans that the collector has rejected. Cancel safe: the spans may have
    /// been sent then.
    pub(super) async fn send(
        &self,
        connection: &mut Option<DedicatedConnection>,
        spans: Bytes,
    ) -> Result<u64, SendError> {
        let sent = timeout(SEND_TIMEOUT, self.send_over(connection, spans));
        sent.await.map_err(|_| SendError::Timeout(SEND_TIMEOUT))?
    }

    async fn send_over(
        &self,
        connection: &mut Option<DedicatedConnection>,
        spans: Bytes,
    ) -> Result<u64, SendError> {
        let mut request = Request::new(body::full(spans));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.clone().into();
        *request.headers_mut() = self.headers().await?;
        // While the request is in flight, nothing is kept: its connection may break.
        let open = connection.take().filter(|open| !open.is_closed());
        let open = match open {
            Some(open) => open,
            None => self.client.open_connection(HttpVersion::Http1).await?,
        };
        let response = self.client.request_over(&open, request).await?;
        let answer = upstream::collect(response.into_body(), MAX_ANSWER).await?;
        *connection = Some(open);
        Ok(otlp::rejected(&answer))
    }

    async fn headers(&self) -> Result<HeaderMap, HeadersError> {
        let mut headers = match &self.headers_file {
            Some(path) => read_headers(path).await?,
            None => HeaderMap::new(),
        };
        headers.insert(CONTENT_TYPE, PROTOBUF);
        headers.entry(USER_AGENT).or_insert(OUR_USER_AGENT);
        Ok(headers)
    }
}

async fn read_headers(path: &Path) -> Result<HeaderMap, HeadersError> {
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|error| HeadersError::Read(path.to_owned(), error))?;
    parse_headers(&text).map_err(|line| HeadersError::Malformed {
        path: path.to_owned(),
        line,
    })
}

/// Reads the headers, one in each line that is not empty. The error is the number of a line that is
/// no header.
fn parse_headers(text: &str) -> Result<HeaderMap, usize> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let headers = lines.map(|(index, line)| {
        let header = line.split_once(':').and_then(|(name, value)| {
            let mut value = HeaderValue::try_from(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::try_from(name.trim()).ok()?, value))
        });
        header.ok_or(index + 1)
    });
    headers.collect()
}

impl SendError {
    /// Returns true if the spans may be sent again, as OTLP says.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::Answer { code, .. } => matches!(code, 429 | 502 | 503 | 504),
            Self::Connection(_) | Self::Timeout(_) | Self::Headers(_) => true,
            Self::Invalid(_) => false,
        }
    }

    /// Returns how long the collector asks kubefan to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answer { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl From<upstream::Error> for SendError {
    fn from(error: upstream::Error) -> Self {
        use upstream::Error;
        match error {
            Error::Answer {
                status,
                retry_after,
            } => Self::Answer {
                code: status.code,
                message: status.message,
                retry_after,
            },
            Error::Unreachable(cause) | Error::Transport(cause) | Error::InDoubt(cause) => {
                Self::Connection(cause)
            }
            Error::Timeout(limit) => Self::Timeout(limit),
            other => Self::Invalid(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_lines_and_a_wrong_line_is_named() {
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let rows: [(&str, Result<Pairs<'_>, usize>); 6] = [
            ("", Ok(&[])),
            (
                "Authorization: Bearer a:b\n\n  x-key :1 \r\n",
                Ok(&[("authorization", "Bearer a:b"), ("x-key", "1")]),
            ),
            ("a: 1\nb", Err(2)),
            ("a b: 1", Err(1)),
            (": 1", Err(1)),
            ("a: \u{1}", Err(1)),
        ];
        for (text, expected) in rows {
            let headers = parse_headers(text);
            let found = headers.as_ref().map(|headers| {
                let pairs = headers.iter().map(|(name, value)| {
                    assert!(value.is_sensitive(), "{text}");
                    (name.as_str(), value.to_str().expect("ASCII"))
                });
                pairs.collect::<Vec<_>>()
            });
            assert_eq!(
                found,
                expected.as_ref().map(|pairs| pairs.to_vec()),
                "{text}"
            );
        }
    }
}
