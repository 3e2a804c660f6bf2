//! Users that an authenticating proxy in front of kubefan names, such as kube-aggregator.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::certificate::CertificateError;
use super::users::{CertificateAuthorities, CertificateMemo};
use crate::identity::User;

/// The headers that a proxy names its caller in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteHeaders {
    /// The headers of the user's name; the first one that is not empty counts.
    pub names: Vec<HeaderName>,
    /// The headers of the UID; the first one that is not empty counts.
    pub uids: Vec<HeaderName>,
    /// The headers of groups; all of them count.
    pub groups: Vec<HeaderName>,
    /// The prefixes, in lower case, of the headers with further attributes. The rest of the header
    /// is the attribute's key.
    pub extra_prefixes: Vec<String>,
}

/// The proxies that may name their callers.
#[derive(Debug)]
pub struct FrontProxy {
    /// The authorities of the proxies' certificates.
    pub authorities: CertificateAuthorities,
    /// The common names that a proxy's certificate may have; any name if this is empty.
    pub allowed_names: Vec<String>,
    /// The headers that the proxies name their callers in.
    pub headers: RemoteHeaders,
}

/// Why the user that a proxy names is not used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FrontProxyError {
    /// The sender's certificate is not good for a proxy.
    #[error("not the certificate of an authenticating proxy")]
    Certificate(#[from] CertificateError),
    /// The common name is not one of the allowed names.
    #[error("{name:?} is not the name of an authenticating proxy")]
    Name {
        /// The common name of the sender's certificate.
        name: String,
    },
    /// The sender is an authenticating proxy, but a header is not UTF-8. The request must not be
    /// answered as a request of the proxy itself.
    #[error("a header of an authenticating proxy is not UTF-8")]
    Header,
}

impl FrontProxy {
    /// Returns the user that the headers name, with the group `system:authenticated` if the user is
    /// authenticated. Returns `None` if the headers name no user. `memo` belongs to the chain's
    /// connection.
    ///
    /// # Errors
    /// If `chain` is not the certificate of a proxy, or a header is not UTF-8.
    pub fn user(
        &self,
        chain: &[CertificateDer<'static>],
        memo: &CertificateMemo,
        headers: &HeaderMap,
        now: UnixTime,
    ) -> Result<Option<User>, FrontProxyError> {
        self.verify(chain, memo, now)?;
        self.headers.user(headers)
    }

    /// Checks that `chain` is the certificate of a proxy at `now`.
    pub(in crate::identity) fn verify(
        &self,
        chain: &[CertificateDer<'static>],
        memo: &CertificateMemo,
        now: UnixTime,
    ) -> Result<(), FrontProxyError> {
        let name = self.authorities.common_name(chain, memo, now)?;
        if self.allowed_names.is_empty() || self.allowed_names.contains(&name) {
            Ok(())
        } else {
            let name = String::clone(&name);
            Err(FrontProxyError::Name { name })
        }
    }
}

impl Default for RemoteHeaders {
    /// Returns the headers that kube-aggregator sends. Most clusters use them.
    fn default() -> Self {
        let header = |name| vec![HeaderName::from_static(name)];
        Self {
            names: header("x-remote-user"),
            uids: header("x-remote-uid"),
            groups: header("x-remote-group"),
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }
}

impl RemoteHeaders {
    /// Removes all these headers from `headers`.
    pub(in crate::identity) fn remove_from(&self, headers: &mut HeaderMap) {
        let has_prefix = |name: &&HeaderName| {
            let mut prefixes = self.extra_prefixes.iter();
            prefixes.any(|prefix| name.as_str().starts_with(prefix))
        };
        let extra: Vec<_> = headers.keys().filter(has_prefix).cloned().collect();
        let others = [&self.names, &self.uids, &self.groups];
        for name in others.into_iter().flatten().chain(&extra) {
            headers.remove(name);
        }
    }

    fn user(&self, headers: &HeaderMap) -> Result<Option<User>, FrontProxyError> {
        let name = first(headers, &self.names)?;
        if name.is_empty() {
            return Ok(None);
        }
        let groups = self.groups.iter().flat_map(|name| headers.get_all(name));
        let groups = groups.filter(|group| !group.is_empty()).map(text);
        let mut user = User {
            name,
            uid: first(headers, &self.uids)?,
            groups: groups.collect::<Result<_, _>>()?,
            extra: self.extra(headers)?,
        };
        user.add_authenticated_group();
        Ok(Some(user))
    }

    fn extra(&self, headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, FrontProxyError> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_prefixes {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix) {
                    extra.entry(decode(key)?).or_default().push(text(value)?);
                }
            }
        }
        Ok(extra)
    }
}

/// Returns the value of the first of these headers that is not empty; an empty string if there is
/// none. As in Go, only the first value of a header counts.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Result<String, FrontProxyError> {
    let values = names.iter().filter_map(|name| headers.get(name));
    let mut values = values.filter(|value| !value.is_empty());
    let first = values.next().map(text).transpose()?;
    Ok(first.unwrap_or_default())
}

/// Decodes the key of an extra. As in Go, a key with an incomplete escape is not changed.
fn decode(key: &str) -> Result<String, FrontProxyError> {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !key.split('%').skip(1).all(is_escape) {
        return Ok(key.to_owned());
    }
    let decoded = percent_decode_str(key).decode_utf8();
    let decoded = decoded.map_err(|_| FrontProxyError::Header)?;
    Ok(decoded.into_owned())
}

fn text(value: &HeaderValue) -> Result<String, FrontProxyError> {
    let text = str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| FrontProxyError::Header)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::identity::certificates::users::tests::{Ca, NOW};

    fn headers(pairs: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let value = |bytes| HeaderValue::from_bytes(bytes).unwrap();
        let pairs = pairs
            .iter()
            .map(|(name, bytes)| (name.parse().unwrap(), value(bytes)));
        pairs.collect()
    }

    fn user_of(headers: &HeaderMap) -> Result<Option<User>, FrontProxyError> {
        RemoteHeaders::default().user(headers)
    }

    #[test]
    fn other_headers_can_name_a_user() {
        let remote = RemoteHeaders {
            names: ["x-user", "x-remote-user"]
                .map(HeaderName::from_static)
                .into(),
            uids: Vec::new(),
            groups: ["x-group", "x-team"].map(HeaderName::from_static).into(),
            extra_prefixes: vec!["x-a-".to_owned(), "x-b-".to_owned()],
        };
        let mut named = headers(&[
            ("x-user", b""),
            ("X-Remote-User", b"jane"),
            ("x-remote-uid", b"7"),
            ("x-team", b"two"),
            ("x-group", b"one"),
            ("x-b-key", b"2"),
            ("X-A-Key", b"1"),
            ("accept", b"*/*"),
        ]);
        let user = remote.user(&named).unwrap().unwrap();
        assert_eq!((&*user.name, &*user.uid), ("jane", ""));
        assert_eq!(user.groups, ["one", "two", "system:authenticated"]);
        assert_eq!(user.extra["key"], ["1", "2"]);
        remote.remove_from(&mut named);
        let mut left: Vec<_> = named.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "x-remote-uid"]);
    }

    #[test]
    fn headers_name_a_user() {
        let named = headers(&[
            ("X-Remote-User", b"jane"),
            ("X-Remote-User", b"joe"),
            ("X-Remote-Uid", b"7"),
            ("X-Remote-Group", b"devs"),
            ("X-Remote-Group", b""),
            ("X-Remote-Group", "größe".as_bytes()),
            ("X-Remote-Extra-Example.com%2FScopes%41", b"read"),
            ("X-Remote-Extra-Example.com%2fscopes%41", b"write"),
            ("X-Remote-Extra-50%", b""),
            ("X-Remote-Other", b"x"),
        ]);
        let user = user_of(&named).unwrap().unwrap();
        assert_eq!((&*user.name, &*user.uid), ("jane", "7"));
        assert_eq!(user.groups, ["devs", "größe", "system:authenticated"]);
        let extra = |key: &str, values: &[&str]| {
            let values = values.iter().map(|value| value.to_string());
            (key.to_owned(), values.collect::<Vec<_>>())
        };
        let expected = [
            extra("example.com/scopesA", &["read", "write"]),
            extra("50%", &[""]),
        ];
        assert_eq!(user.extra, BTreeMap::from(expected));
    }

    #[test]
    fn an_anonymous_user_does_not_become_an_authenticated_one() {
        let groups = |name, group| {
            let named = headers(&[("x-remote-user", name), ("x-remote-group", group)]);
            user_of(&named).unwrap().unwrap().groups
        };
        let anonymous = groups(b"system:anonymous", b"system:unauthenticated");
        assert_eq!(anonymous, ["system:unauthenticated"]);
        assert_eq!(groups(b"system:anonymous", b"a"), ["a"]);
        assert_eq!(groups(b"jane", b"system:unauthenticated"), anonymous);
        let authenticated = groups(b"jane", b"system:authenticated");
        assert_eq!(authenticated, ["system:authenticated"]);
    }

    #[test]
    fn headers_without_a_name_or_text_name_no_user() {
        assert_eq!(user_of(&headers(&[("x-remote-group", b"a")])), Ok(None));
        let first_is_empty = headers(&[("x-remote-user", b""), ("x-remote-user", b"joe")]);
        assert_eq!(user_of(&first_is_empty), Ok(None));
        for (name, value) in [
            ("x-remote-user", &b"\xff"[..]),
            ("x-remote-uid", b"\xff"),
            ("x-remote-group", b"\xff"),
            ("x-remote-extra-a", b"\xff"),
            ("x-remote-extra-%ff", b"a"),
        ] {
            let mut named = headers(&[("x-remote-user", b"jane")]);
            named.insert(name, HeaderValue::from_bytes(value).unwrap());
            assert_eq!(user_of(&named), Err(FrontProxyError::Header), "{name}");
        }
    }

    #[test]
    fn only_proxies_may_name_users() {
        let (ca, other) = (Ca::new("proxies"), Ca::new("others"));
        let named = headers(&[("x-remote-user", b"jane")]);
        let user = |allowed: &[&str], chain: &[CertificateDer<'static>], now| {
            let proxy = FrontProxy {
                authorities: ca.authorities(),
                allowed_names: allowed.iter().map(|name| name.to_string()).collect(),
                headers: RemoteHeaders::default(),
            };
            let user = proxy.user(chain, &CertificateMemo::default(), &named, now);
            user.map(|user| user.unwrap().name)
        };
        let chain = [ca.client(&["front"], &[])];
        for allowed in [&[][..], &["other", "front"]] {
            assert_eq!(user(allowed, &chain, NOW).unwrap(), "jane");
        }
        let error = user(&["other"], &chain, NOW).unwrap_err();
        assert!(matches!(error, FrontProxyError::Name { name } if name == "front"));
        let unnamed = [ca.client(&[], &[])];
        assert_eq!(user(&[], &unnamed, NOW).unwrap(), "jane");
        assert!(user(&["front"], &unnamed, NOW).is_err());
        let foreign = [other.client(&["front"], &[])];
        let later = UnixTime::since_unix_epoch(Duration::from_secs(NOW.as_secs() * 2));
        for (chain, now) in [(&foreign[..], NOW), (&chain, later), (&[], NOW)] {
            let error = user(&[], chain, now).unwrap_err();
            assert!(matches!(error, FrontProxyError::Certificate(_)), "{error}");
        }
    }
}
