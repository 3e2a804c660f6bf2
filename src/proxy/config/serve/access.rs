//! How callers are authenticated and authorized.

use super::checker::Checker;
use super::tls::Tls;
use crate::config::settings::Settings;
use crate::{identity, ledger};

/// Returns the settings of `identity`, for a listener with `tls`.
pub(super) fn access(settings: &Settings, tls: &Tls) -> identity::Config {
    let (authentication, authorization) = (&settings.authentication, &settings.authorization);
    let mode = authentication.mode.unwrap_or(match tls {
        Tls::Plain => identity::Mode::None,
        Tls::Files(_) | Tls::SelfSigned { .. } => identity::Mode::Caller,
    });
    identity::Config {
        mode,
        anonymous: authentication.anonymous,
        token_ttl: authentication.token_ttl.0,
        allowed_ttl: authorization.allowed_ttl.0,
        denied_ttl: authorization.denied_ttl.0,
        stale: authorization.stale.0,
        reauthorize: authorization.reauthorize.0,
        max_reviews_per_second: authorization.max_reviews_per_second,
        reauthenticate: authentication.reauthenticate.0,
        max_reviews_in_flight: settings.limits.max_reviews_inflight,
        max_failed_per_second: settings.limits.max_failed_authentications_per_second,
        names_covered: authorization.names_covered,
        ignored_extra: authorization.ignore_extra.clone(),
        ..identity::Config::default()
    }
}

/// Returns `access` with budgets for owners of tokens and for decisions that are shares of
/// `memory`.
pub(super) fn with_budgets(access: identity::Config, memory: &ledger::Limits) -> identity::Config {
    identity::Config {
        token_bytes: memory.share(identity::Config::DEFAULT_TOKEN_BYTES),
        decision_bytes: memory.share(identity::Config::DEFAULT_DECISION_BYTES),
        ..access
    }
}

impl Checker<'_> {
    /// Returns the authorities of client certificates. They are used only if callers are
    /// authenticated.
    pub(super) fn authorities(
        &mut self,
        access: &identity::Config,
    ) -> Option<identity::AuthoritySources> {
        const CLIENT: &str = "authentication.clientCaFile";
        const PROXY: &str = "authentication.requestheaderClientCaFile";
        const NAMES: &str = "authentication.requestheaderAllowedNames";
        let authentication = &self.settings.authentication;
        let sources = identity::AuthoritySources {
            client_ca: authentication.client_ca_file.clone(),
            request_header_ca: authentication.requestheader_client_ca_file.clone(),
            request_header_allowed_names: authentication.requestheader_allowed_names.clone(),
        };
        let is_off = access.mode == identity::Mode::None;
        let are_accepted = authentication.client_certificates;
        let (client, proxy) = (&sources.client_ca, &sources.request_header_ca);
        for (key, is_set, is_used) in [
            ("authentication.anonymous", authentication.anonymous, true),
            (CLIENT, client.is_some(), are_accepted),
            (PROXY, proxy.is_some(), are_accepted),
        ] {
            if is_off && is_set {
                self.report(key, "has no effect with --auth none");
            } else if is_set && !is_used {
                let other = self.sources.name("authentication.clientCertificates", key);
                self.report(key, &format!("has no effect without {other}"));
            }
        }
        if sources.request_header_ca.is_none() && !sources.request_header_allowed_names.is_empty() {
            let other = self.sources.name(PROXY, NAMES);
            self.report(NAMES, &format!("has no effect without {other}; add it"));
        }
        are_accepted.then_some(sources)
    }
}
