//! Where spans are sent to, and how many.

use std::path::PathBuf;

use http::Uri;

use super::sampling::Rate;

/// Where spans are sent to, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The URL that takes spans: `http` or `https`, with a host and the path, such as
    /// `http://localhost:4318/v1/traces`.
    pub endpoint: Uri,
    /// The share of the requests that are recorded.
    pub rate: Rate,
    /// Certificate authorities (PEM) of the collector; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// A file with headers for the collector, such as one with credentials: a line `Name: value`
    /// for each. It is read again for each request to the collector.
    pub headers_file: Option<PathBuf>,
}
