//! How far the listener for clients can be reached, and the consequences.

use std::net::SocketAddr;

use super::checker::Checker;
use super::tls::Tls;
use crate::identity;
use crate::server::WebPageRules;

/// The consequences of how far the listener for clients can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exposure {
    /// The danger if the address is used; `None` if there is no danger.
    pub(super) danger: Option<&'static str>,
    pub(super) web_pages: WebPageRules,
}

impl Checker<'_> {
    /// Returns how far an address can be reached. Reports one that would let others read with
    /// kubefan's rights, unless the operator accepts that.
    pub(super) fn exposure(
        &mut self,
        listen: SocketAddr,
        tls: &Tls,
        mode: identity::Mode,
    ) -> Exposure {
        const ADDRESS: &str = "listen.address";
        const ACCEPTED: &str = "listen.insecureExposeToNetwork";
        let is_loopback = listen.ip().is_loopback();
        let (is_plain, is_open) = (*tls == Tls::Plain, mode == identity::Mode::None);
        let danger = match (is_open, is_plain) {
            _ if is_loopback => None,
            (true, _) => Some(
                "with --auth none kubefan answers everyone with its own rights; use 127.0.0.1 or \
                 [::1], or serve TLS with --auth caller",
            ),
            (false, true) => Some(
                "without TLS anyone on the network can read the tokens; use 127.0.0.1 or [::1], or \
                 serve TLS",
            ),
            (false, false) => None,
        };
        match (danger, self.settings.listen.insecure_expose_to_network) {
            (Some(danger), false) => {
                let address = &self.settings.listen.address;
                self.report(ADDRESS, &format!("{address} is not loopback: {danger}"));
            }
            (None, true) => {
                let message = "has no effect: the listener is not exposed; leave it out";
                self.report(ACCEPTED, message);
            }
            (Some(_), true) | (None, false) => {}
        }
        let web_pages = WebPageRules {
            // A browser compares the certificate's names with the page's. A user may accept any
            // certificate, so this counts only if the page needs credentials, too.
            has_local_name: is_loopback && (is_open || is_plain),
            are_callers_authenticated: !is_open,
        };
        Exposure { danger, web_pages }
    }
}
