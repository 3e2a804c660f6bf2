//! Answers to reads: from the cache or forwarded, and their headers, representations and deadlines.

mod deadlines;
mod deprecated_paths;
mod gzip;
mod headers;
mod representations;
mod tables;
