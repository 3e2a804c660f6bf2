//! The kinds of admin listeners, and what each of them expects of its callers.

use super::askers::Asker;
use super::rows::{Need, Row};

/// How far a listener can be reached, and what its callers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Programs on this machine can reach it, and need nothing.
    Loopback,
    /// Everyone can reach it, and needs rights.
    Guarded,
    /// Everyone can reach it, and needs nothing; there is no admin API.
    Exposed,
}

/// A kind of admin listener, and the flags of its kubefan.
pub(super) struct Kind {
    pub(super) reach: Reach,
    pub(super) authenticates_clients: bool,
    pub(super) flags: &'static [&'static str],
}

pub(super) static KINDS: [Kind; 5] = [
    Kind {
        reach: Reach::Loopback,
        authenticates_clients: false,
        flags: &[],
    },
    Kind {
        reach: Reach::Loopback,
        authenticates_clients: true,
        flags: &["--auth", "caller"],
    },
    Kind {
        reach: Reach::Guarded,
        authenticates_clients: true,
        flags: &["--tls-self-signed", "--admin-listen", "0.0.0.0:0"],
    },
    Kind {
        reach: Reach::Guarded,
        authenticates_clients: false,
        flags: &[
            "--tls-self-signed",
            "--admin-listen",
            "0.0.0.0:0",
            "--auth",
            "none",
        ],
    },
    Kind {
        reach: Reach::Exposed,
        authenticates_clients: true,
        flags: &[
            "--tls-self-signed",
            "--admin-listen",
            "0.0.0.0:0",
            "--admin-insecure-expose-to-network",
        ],
    },
];

/// Headers that show what caused a request, and on which listeners the request passes.
pub(super) struct Browser {
    pub(super) headers: &'static [(&'static str, &'static str)],
    pub(super) on_loopback: bool,
    /// Beyond loopback, with a token of a caller that is authenticated.
    pub(super) with_token: bool,
    /// Beyond loopback, with other credentials or none.
    pub(super) without_token: bool,
}

pub(super) static BROWSERS: [Browser; 7] = [
    // A page that has bound its own name to the address of the listener.
    Browser {
        headers: &[("host", "pages.example")],
        on_loopback: false,
        with_token: true,
        without_token: true,
    },
    Browser {
        headers: &[("host", "localhost.pages.example")],
        on_loopback: false,
        with_token: true,
        without_token: true,
    },
    // A program sends the token; a browser adds a certificate to the requests of any page.
    Browser {
        headers: &[("origin", "https://pages.example")],
        on_loopback: false,
        with_token: true,
        without_token: false,
    },
    Browser {
        headers: &[("origin", "null")],
        on_loopback: false,
        with_token: true,
        without_token: false,
    },
    Browser {
        headers: &[("sec-fetch-site", "cross-site")],
        on_loopback: false,
        with_token: true,
        without_token: false,
    },
    Browser {
        headers: &[("sec-fetch-site", "same-site")],
        on_loopback: false,
        with_token: true,
        without_token: false,
    },
    // The dashboard itself.
    Browser {
        headers: &[
            ("host", "localhost:1"),
            ("origin", "http://localhost:1"),
            ("sec-fetch-site", "same-origin"),
        ],
        on_loopback: true,
        with_token: true,
        without_token: true,
    },
];

// === impl Kind ===

impl Kind {
    /// Returns the status that the caller gets, if no foreign web page may have caused the request.
    pub(super) fn expected(&self, row: &Row, asker: &Asker) -> u16 {
        let with = |need, status| asker.refusal(need).unwrap_or(status);
        match (self.reach, row.need) {
            (_, Need::Nothing) => row.status,
            (Reach::Exposed, _) if row.is_of_api() => 403,
            (_, Need::Identity) if self.authenticates_clients => with(Need::Identity, row.status),
            // The answer would show what kubefan itself may read.
            (Reach::Guarded, Need::Identity) => with(Need::Metrics, 403),
            (Reach::Guarded, need) => with(need, row.status),
            (Reach::Loopback | Reach::Exposed, _) => row.status,
        }
    }

    /// Returns true if the listener knows the authority of client certificates.
    pub(super) fn takes_certificates(&self) -> bool {
        self.reach == Reach::Guarded && self.authenticates_clients
    }

    /// Returns true if a request with the headers of `browser` passes.
    pub(super) fn passes(&self, browser: &Browser, asker: &Asker) -> bool {
        match self.reach {
            Reach::Loopback => browser.on_loopback,
            Reach::Guarded if asker.certificate.is_none() => browser.with_token,
            Reach::Guarded | Reach::Exposed => browser.without_token,
        }
    }
}
