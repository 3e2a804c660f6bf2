//! Content negotiation: the representations of an answer, and the choice by the Accept header.

mod accept;
mod representation;

#[cfg(test)]
mod tests;

pub(crate) use accept::negotiate_status;
pub use accept::{Negotiated, ReadVerb, negotiate, negotiate_json};
pub use representation::{MetaVersion, Representation, View};
