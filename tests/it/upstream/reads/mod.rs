//! Answers to reads: from the cache or forwarded, and their headers, representations and deadlines.

mod deadlines;
mod deprecated_paths;
mod documents;
mod gzip;
mod headers;
mod managed_fields;
mod odd_columns;
mod printed_tables;
mod representations;
mod scopes;
pub(crate) mod shards;
mod table_states;
mod tables;
