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

/// In place of a program, if further programs of a user have no rows of their own.
const OTHER_PROGRAMS: &str = "(other programs)";

/// A user with one of its programs. The bill has a row for each.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bill) struct Client {
    pub(super) key: u64,
    /// The hash of the user alone, or of the address.
    pub(super) user_key: u64,
    /// The name of the user; empty if it is not known.
    pub(in crate::bill) user: String,
    /// The address of a client whose user is not known.
    pub(in crate::bill) address: Option<IpAddr>,
    /// Product and version of the program, such as `kubectl/v1.37`; `(other programs)` for those of
    /// a user that have no rows of their own. Empty if the program sends no User-Agent, and if the
    /// user is not known: anyone can send any name.
    pub(in crate::bill) user_agent: String,
}

/// The hashes of a user, of a client and of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// The hash of the user, or of the address of an unknown one.
    pub(super) user: u64,
    /// The hash of the user and its program. The row of several programs has the hash of the user.
    pub(super) client: u64,
    pub(super) operation: u64,
}

// === impl Identity, Keys, Client ===

impl Identity<'_> {
    /// Returns the identity with a name of bounded length.
    pub(super) fn bounded(self) -> Self {
        match self {
            Self::User(name) => Self::User(beginning(name, MAX_USER)),
            Self::Address(address) => Self::Address(address.to_canonical()),
        }
    }
}

impl Keys {
    /// Returns the keys of the row for all programs of the user that have no rows of their own.
    pub(super) fn of_all_programs(self) -> Self {
        Self {
            client: self.user,
            ..self
        }
    }

    /// Returns true if the row is for several programs of the user.
    pub(super) fn are_of_all_programs(self) -> bool {
        self.client == self.user
    }
}

impl Client {
    /// Creates the client with `keys`, of `identity`, which is bounded, and a program that sends
    /// `user_agent`.
    pub(super) fn new(keys: Keys, identity: Identity<'_>, user_agent: &str) -> Self {
        let (user, address, program) = match identity {
            Identity::User(name) if keys.are_of_all_programs() => (name, None, OTHER_PROGRAMS),
            Identity::User(name) => (name, None, product(user_agent)),
            Identity::Address(address) => ("", Some(address), ""),
        };
        Self {
            key: keys.client,
            user_key: keys.user,
            user: user.to_owned(),
            address,
            user_agent: program.to_owned(),
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
