//! The kinds of callers, with their credentials and rights.

use serde_json::json;

use super::LIMIT;
use super::rows::Need;
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, READER};
use crate::support::programs::certificates::{Authority, Identity};
use crate::upstream::operation::admin::{account, allow_paths};

/// A WebSocket subprotocol with the admin's token.
const TOKEN_PROTOCOL: &str =
    "base64url.bearer.authorization.k8s.io.YWRtaW4tdG9rZW4, v4.channel.k8s.io";

const NONE: &[Need] = &[];
const METRICS: &[Need] = &[Need::Metrics];
const NAMES: &[Need] = &[Need::Names];
const ALL: &[Need] = &[Need::Metrics, Need::Names];

/// A kind of caller.
pub(super) struct Asker {
    pub(super) name: &'static str,
    headers: Vec<(&'static str, String)>,
    pub(super) certificate: Option<Identity>,
    /// What the caller has, or the status of all answers that need something.
    standing: Result<&'static [Need], u16>,
}

impl Asker {
    fn new(name: &'static str, standing: Result<&'static [Need], u16>) -> Self {
        Self {
            name,
            headers: Vec::new(),
            certificate: None,
            standing,
        }
    }

    /// Creates a caller that is not known.
    pub(super) fn unknown(name: &'static str) -> Self {
        Self::new(name, Err(401))
    }

    pub(super) fn admin() -> Self {
        Self::new("an admin", Ok(ALL)).token(ADMIN)
    }

    pub(super) fn certified_admin(server: &ApiServer) -> Self {
        let certificate = server.certificate("certified-operator", "system:masters");
        Self::new("an admin's certificate", Ok(ALL)).certificate(certificate)
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn token(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    fn certificate(self, certificate: Identity) -> Self {
        Self {
            certificate: Some(certificate),
            ..self
        }
    }

    /// Returns the status of a refusal, if the caller does not have what an answer needs.
    pub(super) fn refusal(&self, need: Need) -> Option<u16> {
        match self.standing {
            Err(status) => Some(status),
            Ok(_) if need == Need::Identity => None,
            Ok(rights) => (!rights.contains(&need)).then_some(403),
        }
    }

    /// Creates a client of the server at `url`, which has a certificate of `authority` if it serves
    /// TLS.
    pub(super) fn client(&self, url: &str, authority: Option<&str>) -> Client {
        let certificate = self.certificate.as_ref();
        let connector = match authority {
            Some(authority) => Connector::tls(authority, certificate, &["http/1.1"]),
            None => Connector::plain(),
        };
        let mut client = Client::new(url, connector);
        for (name, value) in &self.headers {
            client = client.with(name, value);
        }
        client
    }

    /// Waits until the API server grants what the caller should have.
    async fn has_its_rights(&self, server: &ApiServer) {
        let client = self.client(&server.url(), Some(server.authority()));
        for need in self.standing.unwrap_or_default() {
            let path = match need {
                Need::Names => "/admin/v1/users",
                _ => "/metrics",
            };
            eventually(self.name, LIMIT, async || {
                let answer = client.get(path).await;
                match answer.status.as_u16() {
                    403 => Err(answer.to_string()),
                    _ => Ok(()),
                }
            })
            .await;
        }
    }
}

/// Returns the callers that kubefan does not know, or does not let impersonate.
fn refused_askers(server: &ApiServer) -> Vec<Asker> {
    let foreign = Authority::new().client("admin", "system:masters");
    let unknown = Asker::unknown;
    vec![
        unknown("no credentials"),
        unknown("a wrong token").token("wrong"),
        unknown("a password").with("authorization", "Basic YWRtaW46YWRtaW4="),
        unknown("a cookie").with("cookie", "token=admin-token"),
        unknown("a token as a subprotocol").with("sec-websocket-protocol", TOKEN_PROTOCOL),
        unknown("the claims of a proxy")
            .with("x-remote-user", "admin")
            .with("x-remote-group", "system:masters"),
        unknown("an admin as another user")
            .token(ADMIN)
            .with("impersonate-user", "reader"),
        unknown("a user as an admin")
            .token(READER)
            .with("impersonate-user", "admin"),
        unknown("no credentials, as an admin")
            .with("impersonate-user", "admin")
            .with("impersonate-group", "system:masters"),
        unknown("a foreign certificate").certificate(foreign),
        Asker::new("an admin's certificate, as another user", Err(403))
            .certificate(server.certificate("certified-operator", "system:masters"))
            .with("impersonate-user", "reader"),
    ]
}

/// Creates the users, grants their rights, and returns all callers.
pub(super) async fn askers(server: &ApiServer, namespace: &str) -> Vec<Asker> {
    let mut askers = refused_askers(server);
    for (name, may_get, rights) in [
        ("no-rights", &[][..], NONE),
        (
            "metrics-and-admin",
            &["/metrics", "/admin", "/admin/v1/", "/admin/v1/caches"],
            METRICS,
        ),
        ("names", &["/admin/v1/users"], NAMES),
        ("everything", &["/metrics", "/admin/*"], ALL),
    ] {
        let token = account(server, namespace, name, may_get).await;
        askers.push(Asker::new(name, Ok(rights)).token(&token));
    }
    let scraper = format!("{namespace}-certified-scraper");
    let subject = json!({
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "User",
        "name": scraper,
    });
    allow_paths(server, &scraper, &["/metrics"], &subject).await;
    let stranger = server.certificate("certified-stranger", "any");
    askers.extend([
        Asker::admin(),
        Asker::new("a user", Ok(NONE)).token(READER),
        Asker::certified_admin(server),
        Asker::new("a certificate with the metrics", Ok(METRICS))
            .certificate(server.certificate(&scraper, "any")),
        Asker::new("a certificate", Ok(NONE)).certificate(stranger.clone()),
        // The certificate counts, as at the API server.
        Asker::new("a certificate and an admin's token", Ok(NONE))
            .certificate(stranger)
            .token(ADMIN),
    ]);
    for asker in &askers {
        asker.has_its_rights(server).await;
    }
    askers
}
