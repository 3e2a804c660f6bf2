//! Answers to reads: from the cache or forwarded, and their headers, representations and deadlines.

mod cache_status;
mod deadlines;
mod deprecated_paths;
mod documents;
mod events;
mod forwarded_tables;
mod gzip;
mod headers;
mod managed_fields;
mod odd_columns;
mod printed_events;
mod printed_tables;
mod representations;
mod scopes;
pub(crate) mod shards;
mod table_changes;
mod table_pages;
mod table_states;
mod table_watches;
mod tables;
