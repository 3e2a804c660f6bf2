//! JSON without trees: a scanner, readers for events, lists and objects, and an indenter.

mod compact;
mod event;
mod indent;
mod list;
mod managed_fields;
mod object;
mod print;
mod scanner;
mod skip;
mod text;
mod values;

pub(crate) use compact::{compact, on_one_line};
pub(crate) use event::{event, raw_event};
pub use indent::{Indenter, indented};
pub(crate) use list::{items_start, list};
pub(crate) use managed_fields::managed_fields;
pub(crate) use object::object;
pub(crate) use print::quoted;
pub(crate) use scanner::{Members, Scanner};
pub(crate) use text::Text;
