//! Decides which certificates prove a user, now and while watches are open.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use kubefan_core::api::Status;
use parking_lot::Mutex;
use rustls::pki_types::UnixTime;

use super::User;
use super::callers::caller::{Credential, KnownCaller};
use super::certificates::authorities::Authorities;
use super::certificates::certificate::CertificateError;
use super::certificates::front_proxy::FrontProxyError;
use super::certificates::proof::Proof;
use super::open_watches::OpenWatches;
use super::tokens::token::Authorization;
use crate::net::{CertificateChain, ClientConnection};

/// Decides by the current authorities which certificates prove a user.
#[derive(Default)]
pub(super) struct Proofs {
    pub(super) current: Arc<ArcSwap<Authorities>>,
}

impl Proofs {
    /// Returns false if the authorities have changed since they accepted the certificate of
    /// `caller`, and do not accept it any more.
    pub(super) fn hold(&self, caller: &KnownCaller) -> bool {
        let Credential::Certificate(proof) = &caller.credential else {
            return true;
        };
        let current = self.current.load();
        Arc::ptr_eq(&current, &proof.authorities)
            || proof.is_accepted(&current, caller.user(), UnixTime::now())
    }

    /// Ends those of `watches` that have a user with a certificate that is not accepted any more.
    pub(super) async fn recheck(&self, watches: &OpenWatches) {
        // Many watches share a connection, and so a certificate.
        let known = Mutex::new(HashMap::new());
        let holds = |caller: &KnownCaller| {
            let Credential::Certificate(proof) = &caller.credential else {
                return true;
            };
            let key = (proof.chain.as_ptr().addr(), caller.user.digest);
            let mut known = known.lock();
            *known.entry(key).or_insert_with(|| self.hold(caller))
        };
        watches.recheck(holds).await;
    }

    /// Returns the user of `chain`: the user whom an authenticating proxy names, or the user in the
    /// certificate. Also returns what proves the user. Returns `None` if there are no authorities,
    /// if the certificate has no name, or if it is not good and the request has a token.
    pub(super) fn certified(
        &self,
        headers: &HeaderMap,
        connection: &ClientConnection,
        chain: &CertificateChain,
    ) -> Result<Option<(User, Proof)>, Status> {
        let (memo, now) = (connection.memo(), UnixTime::now());
        let authorities = self.current.load_full();
        let proof = |expiry| Proof {
            chain: Arc::clone(chain),
            expiry,
            authorities: Arc::clone(&authorities),
        };
        if let Some(proxy) = &authorities.front_proxy {
            match proxy.user(chain, memo, headers, now) {
                Ok(Some(user)) => return Ok(Some((user, proof(None)))),
                Err(error @ FrontProxyError::Header) => {
                    return Err(Status::bad_request(error.to_string()));
                }
                // The sender is no proxy, or the request is one of the proxy itself.
                Ok(None) | Err(_) => {}
            }
        }
        let Some(client) = &authorities.client else {
            return Ok(None);
        };
        match client.user(chain, memo, now) {
            Ok(certified) => {
                let expiry = certified.expiry.clone();
                Ok(Some((certified.user.clone(), proof(Some(expiry)))))
            }
            Err(error) => {
                tracing::debug!(%error, "a client certificate gives no user");
                let has_token = matches!(Authorization::of(headers), Authorization::Token(_));
                let refusal = refusal(&error, has_token, authorities.front_proxy.is_some());
                refusal.map_or(Ok(None), Err)
            }
        }
    }
}

/// Returns the answer to a request with a certificate that has no user because of `error`; `None`
/// if the request counts as one without a certificate.
fn refusal(error: &CertificateError, has_token: bool, has_front_proxy: bool) -> Option<Status> {
    match error {
        // A bad certificate must not prevent the use of a token.
        _ if has_token => None,
        // The API server treats this certificate as no credentials, unless it also checks whether
        // the certificate is that of an authenticating proxy.
        CertificateError::NoName if !has_front_proxy => None,
        CertificateError::Reserved { .. } => {
            Some(Status::failure(403, "Forbidden", error.to_string()))
        }
        // Forwarded without the certificate, the request would be an anonymous one.
        _ => Some(Status::failure(401, "Unauthorized", "Unauthorized")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_without_a_user_is_refused_as_by_the_api_server() {
        let reserved = || CertificateError::Reserved {
            name: "system:anonymous".to_owned(),
        };
        // Each row: the error, whether the request has a token, whether there is a front proxy.
        for (error, has_token, has_front_proxy, expected) in [
            (CertificateError::NoName, false, false, None),
            (CertificateError::NoName, false, true, Some(401)),
            (CertificateError::NoName, true, true, None),
            (CertificateError::NotText, false, false, Some(401)),
            (CertificateError::NotText, true, false, None),
            (reserved(), false, false, Some(403)),
            (CertificateError::NotText, false, true, Some(401)),
            (reserved(), true, false, None),
            (reserved(), false, true, Some(403)),
        ] {
            let status = refusal(&error, has_token, has_front_proxy);
            let code = status.map(|status| status.code);
            assert_eq!(code, expected, "{error:?}, {has_token}, {has_front_proxy}");
        }
    }
}
