//! Resource versions, which are opaque to clients but which kubefan compares as numbers.

use std::fmt;
use std::str::FromStr;

/// A position in the API server's history. Versions are comparable within one resource of one etcd.
///
/// Kubernetes documents them on the page "API concepts", section "Resource versions". Since
/// Kubernetes 1.35, comparing them as numbers is part of the documented contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceVersion(pub u64);

impl ResourceVersion {
    /// The version that both the empty text (unset) and `"0"` parse to.
    pub const ZERO: Self = Self(0);
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is not a resource version, because it is not a decimal unsigned 64-bit number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource version {0:?} is not a decimal number")]
pub struct ParseResourceVersionError(pub String);

impl FromStr for ResourceVersion {
    type Err = ParseResourceVersionError;

    /// Parses a decimal number; the empty text is [`ResourceVersion::ZERO`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::ZERO);
        }
        // Rust accepts a plus sign before the number; the API server does not.
        let number = text.parse().ok().filter(|_| !text.starts_with('+'));
        let malformed = || ParseResourceVersionError(text.to_owned());
        number.map(Self).ok_or_else(malformed)
    }
}
