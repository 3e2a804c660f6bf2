//! Scheme: the Rust types of kinds, and the kinds of Rust types.
//!
//! A program registers its types. A [`Scheme`] then returns the kind of a type. It also
//! decodes objects if their kinds are found only at run time, for example in a file or in a
//! list of several kinds.

mod decoded;
mod error;
mod registry;

#[cfg(test)]
mod tests;

pub use decoded::Decoded;
pub use error::Error;
pub use registry::Scheme;
