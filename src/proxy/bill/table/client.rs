//! Client: a user with one of its programs.

use std::net::IpAddr;

/// The longest name of a user that is kept in full, in bytes.
const MAX_USER: usize = 512;
/// The longest product and version that are kept in full, in bytes.
const MAX_USER_AGENT: usize = 64;

/// From whom a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity<'a> {
    /// The name of a user that was authenticated.
    User(&'a str),
    /// The address of a client whose user is not known: it has no credentials, or they were
    /// refused, or kubefan does not authenticate callers.
    Address(IpAddr),
}

/// A user with one of its programs. The bill has a row for each.
#[derive(Debug, PartialEq, Eq)]
pub struct Client {
    pub(super) key: u64,
    /// The name of the user; empty if it is not known.
    pub user: String,
    /// The address of a client whose user is not known.
    pub address: Option<IpAddr>,
    /// Product and version of the program, such as `kubectl/v1.37`; empty if it sends no User-Agent.
    pub user_agent: String,
}

// === impl Identity, Client ===

impl Identity<'_> {
    /// Returns the identity with a name of bounded length.
    pub(super) fn bounded(self) -> Self {
        match self {
            Self::User(name) => Self::User(beginning(name, MAX_USER)),
            Self::Address(address) => Self::Address(address.to_canonical()),
        }
    }
}

impl Client {
    /// Creates a client. `key` is the hash of the others, which are bounded.
    pub(super) fn new(key: u64, identity: Identity<'_>, user_agent: &str) -> Self {
        let (user, address) = match identity {
            Identity::User(name) => (name.to_owned(), None),
            Identity::Address(address) => (String::new(), Some(address)),
        };
        Self {
            key,
            user,
            address,
            user_agent: user_agent.to_owned(),
        }
    }

    /// Returns the bytes that the client takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.user.capacity() + self.user_agent.capacity()
    }
}

/// Returns product and version of a User-Agent, without the patch version and all that follows:
/// `kubectl/v1.37` for `kubectl/v1.37.1 (linux/amd64) kubernetes/1a2b3c4`.
pub(super) fn product(user_agent: &str) -> &str {
    let first = user_agent.split_whitespace().next().unwrap_or_default();
    let end = match first.split_once('/') {
        None => first.len(),
        Some((product, rest)) => {
            let version = rest.split('/').next().unwrap_or_default();
            let patch = version.match_indices('.').nth(1);
            product.len() + 1 + patch.map_or(version.len(), |(index, _)| index)
        }
    };
    beginning(&first[..end], MAX_USER_AGENT)
}

/// Returns the first `most` bytes of `text`, or some fewer so that no character is cut.
fn beginning(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_is_shortened_to_product_and_version() {
        let long = "x".repeat(100);
        for (user_agent, expected) in [
            (
                "kubectl/v1.37.1 (linux/amd64) kubernetes/1a2b3c4",
                "kubectl/v1.37",
            ),
            (
                "kube-controller-manager/v1.37.1 (linux/amd64) kubernetes/1a2b3c4/leader-election",
                "kube-controller-manager/v1.37",
            ),
            ("OpenAPI-Generator/29.0.0/python", "OpenAPI-Generator/29.0"),
            ("Go-http-client/2.0", "Go-http-client/2.0"),
            ("curl/8", "curl/8"),
            ("kube-rs", "kube-rs"),
            ("  spaces/1.2.3", "spaces/1.2"),
            ("/", "/"),
            ("a/", "a/"),
            ("", ""),
            (long.as_str(), &long[..MAX_USER_AGENT]),
        ] {
            assert_eq!(product(user_agent), expected, "{user_agent:?}");
        }
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        for (text, most, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "abc"),
            ("aéé", 2, "a"),
            ("aéé", 3, "aé"),
            ("éé", 1, ""),
        ] {
            assert_eq!(beginning(text, most), expected, "{text}, {most}");
        }
        let long = "ü".repeat(MAX_USER);
        let Identity::User(cut) = Identity::User(&long).bounded() else {
            panic!("a user");
        };
        assert_eq!(cut.len(), MAX_USER);
    }
}
