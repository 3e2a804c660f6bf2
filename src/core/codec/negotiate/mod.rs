//! Content negotiation: the representations of an answer, and the choice by the Accept header.

mod accept;
mod representation;

#[cfg(test)]
mod tests;

pub(crate) use accept::negotiate_status;

pub use accept::Negotiated;
pub use accept::ReadVerb;
pub use accept::negotiate;
pub use representation::MetaVersion;
pub use representation::Representation;
pub use representation::View;
