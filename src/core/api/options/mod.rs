//! The query parameters of GET, LIST and WATCH, decoded and validated.

mod continue_token;
mod get;
mod list;
mod malformed;
mod pretty;
mod query;
mod timeout;

pub use continue_token::ContinueToken;
pub use get::{Consistency, GetOptions};
pub use list::{ListOptions, ListRequest, WatchRequest, WatchStart};
pub use malformed::Malformed;
pub use pretty::{pretty_parameter, should_indent};
pub use query::Query;
pub use timeout::request_timeout;
