//! The query parameters of GET, LIST and WATCH, decoded and validated.

mod continue_token;
mod get;
mod list;
mod malformed;
mod pretty;
mod query;
mod timeout;

pub use continue_token::ContinueToken;
pub use get::Consistency;
pub use get::GetOptions;
pub use list::ListOptions;
pub use list::ListRequest;
pub use list::WatchRequest;
pub use list::WatchStart;
pub use malformed::Malformed;
pub use pretty::pretty_parameter;
pub use pretty::should_indent;
pub use query::Query;
pub use timeout::request_timeout;
