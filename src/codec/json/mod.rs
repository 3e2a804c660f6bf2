//! JSON: scanned without a tree, written, indented.

mod indent;
mod object;
mod scanner;

pub(crate) use object::Head;
pub(crate) use object::ListHead;
pub(crate) use object::escape_as_go;
pub(crate) use object::event;
pub(crate) use object::items_start;
pub(crate) use object::list;
pub(crate) use object::object;
pub(crate) use object::on_one_line;
pub(crate) use object::quoted;
pub(crate) use object::raw_event;
pub(crate) use scanner::Members;
pub(crate) use scanner::Scanner;
pub(crate) use scanner::Text;
pub(crate) use scanner::compact;

pub use indent::Indenter;
pub use indent::indented;
