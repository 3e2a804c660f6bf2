//! Scheme: the Rust types of kinds, and the kinds of Rust types.
//!
//! A program registers the types that it knows. A [`Scheme`] then tells the kind of a type, and
//! decodes objects whose kind is known only at run time, as from a file or from a list of several
//! kinds.

mod decoded;
mod error;
mod registry;

#[cfg(test)]
mod tests;

pub use decoded::Decoded;
pub use error::Error;
pub use registry::Scheme;
