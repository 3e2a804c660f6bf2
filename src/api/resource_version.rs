//! Resource versions: opaque to clients, ordered for us.

use std::fmt;
use std::str::FromStr;

/// A position in the API server's history, comparable within one resource of one etcd.
///
/// Source: the API concepts page "Resource versions"; numeric comparison is part of the documented
/// contract since Kubernetes 1.35.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceVersion(pub u64);

impl ResourceVersion {
    /// What an unset resource version and `"0"` both parse to.
    pub const ZERO: Self = Self(0);
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is no decimal unsigned 64-bit number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource version {0:?} is not a decimal number")]
pub struct ParseResourceVersionError(pub String);

impl FromStr for ResourceVersion {
    type Err = ParseResourceVersionError;

    /// Parses a decimal number; the empty text is [`ResourceVersion::ZERO`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
        match text {
            "" => Ok(Self::ZERO),
            _ if !digits_only => Err(ParseResourceVersionError(text.to_owned())),
            _ => text
                .parse()
                .map(Self)
                .map_err(|_| ParseResourceVersionError(text.to_owned())),
        }
    }
}
