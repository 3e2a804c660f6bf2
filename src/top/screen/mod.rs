//! The screen of `kubefan top`.
//!
//! ```text
//! key       the keys that it knows
//! model     what the screen shows, and how keys and news change it. Pure
//! lines     texts as lines of the screen. Pure
//! render    the model as cells of a terminal. Pure
//! terminal  takes the terminal, and gives it back
//! run       the loop: keys, news, signals, drawing
//! ```

mod key;
mod lines;
mod model;
mod render;
mod run;
mod terminal;

pub(crate) use run::run;

#[cfg(test)]
mod tests;
