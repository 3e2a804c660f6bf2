//! JSON without trees: a scanner, readers for events, lists and objects, and an indenter.

mod compact;
mod event;
mod indent;
mod list;
mod managed_fields;
mod object;
mod print;
mod scanner;
mod text;
mod values;

pub(crate) use compact::compact;
pub(crate) use compact::on_one_line;
pub(crate) use event::event;
pub(crate) use event::raw_event;
pub(crate) use list::items_start;
pub(crate) use list::list;
pub(crate) use managed_fields::managed_fields;
pub(crate) use object::object;
pub(crate) use print::quoted;
pub(crate) use scanner::Members;
pub(crate) use scanner::Scanner;
pub(crate) use text::Text;

pub use indent::Indenter;
pub use indent::indented;
