//! The certificate that proves the identity of a caller.

use std::sync::Arc;

use rustls::pki_types::UnixTime;

use super::authorities::Authorities;
use super::users::{CertificateMemo, Expiry};
use crate::identity::User;
use crate::net::CertificateChain;

/// The certificate of a user, or of the authenticating proxy that names the user.
#[derive(Clone, Debug)]
pub(in crate::identity) struct Proof {
    pub(in crate::identity) chain: CertificateChain,
    /// When the certificate of a user expires; `None` for a proxy.
    pub(in crate::identity) expiry: Option<Expiry>,
    /// The authorities that verified the chain.
    pub(in crate::identity) authorities: Arc<Authorities>,
}

impl Proof {
    /// Returns true if the proof has named `user`, and would still do so at `now` by `authorities`.
    pub(in crate::identity) fn is_accepted(
        &self,
        authorities: &Authorities,
        user: &User,
        now: UnixTime,
    ) -> bool {
        let memo = CertificateMemo::default();
        match (&self.expiry, &authorities.client, &authorities.front_proxy) {
            (Some(_), Some(client), _) => {
                let certified = client.user(&self.chain, &memo, now);
                certified.is_ok_and(|certified| certified.user == *user)
            }
            (None, _, Some(proxy)) => proxy.verify(&self.chain, &memo, now).is_ok(),
            _ => false,
        }
    }

    /// Creates a proof without certificates.
    #[cfg(test)]
    pub(in crate::identity) fn for_tests(expiry: Option<Expiry>) -> Self {
        Self {
            chain: Arc::new([]),
            expiry,
            authorities: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::identity::certificates::front_proxy::FrontProxy;
    use crate::identity::certificates::users::tests::{Ca, NOW};

    #[test]
    fn a_certificate_is_accepted_again_only_by_the_same_authorities() {
        let (users, proxies, new) = (Ca::new("users"), Ca::new("proxies"), Ca::new("new"));
        let front_proxy = |ca: &Ca, name: &str| FrontProxy {
            authorities: ca.authorities(),
            allowed_names: vec![name.to_owned()],
            headers: Default::default(),
        };
        let authorities = |client: &Ca, proxy: &Ca, name: &str| Authorities {
            client: Some(client.authorities()),
            front_proxy: Some(front_proxy(proxy, name)),
        };
        let named = |name: &str| {
            let mut user = User {
                name: name.to_owned(),
                ..User::default()
            };
            user.add_authenticated_group();
            user
        };
        let own: CertificateChain = [users.client(&["jane"], &[])].into();
        let memo = CertificateMemo::default();
        let certified = users.authorities().user(&own, &memo, NOW);
        let jane = certified.expect("a user").user.clone();
        let front: CertificateChain = [proxies.client(&["front"], &[])].into();
        let proof = |chain: &CertificateChain, is_own: bool| Proof {
            chain: Arc::clone(chain),
            expiry: is_own.then(|| Expiry::new(|| None)),
            authorities: Arc::default(),
        };
        let (of_jane, of_front) = (proof(&own, true), proof(&front, false));
        let at = |now: UnixTime, current: &Authorities| {
            let by_proxy = named("proxied");
            (
                of_jane.is_accepted(current, &jane, now),
                of_front.is_accepted(current, &by_proxy, now),
            )
        };
        for (current, expected) in [
            (authorities(&users, &proxies, "front"), (true, true)),
            (authorities(&new, &proxies, "front"), (false, true)),
            (authorities(&users, &new, "front"), (true, false)),
            (authorities(&users, &proxies, "another"), (true, false)),
            (Authorities::default(), (false, false)),
        ] {
            assert_eq!(at(NOW, &current), expected, "{current:?}");
        }
        let current = authorities(&users, &proxies, "front");
        assert!(!of_jane.is_accepted(&current, &named("joe"), NOW));
        let later = UnixTime::since_unix_epoch(Duration::from_secs(NOW.as_secs() + 7_200));
        assert_eq!(at(later, &current), (false, false));
    }
}
