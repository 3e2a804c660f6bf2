//! The users of the tests, their rights and their credentials.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::certificates::{Authority, Identity};

/// The namespace with the objects that the users read.
pub(super) const NAMESPACE: &str = "matrix";

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A user of the tests with its credentials.
#[derive(Clone, Debug)]
pub(super) struct TestUser {
    pub(super) name: &'static str,
    pub(super) token: Option<String>,
    pub(super) certificate: Option<Identity>,
}

impl TestUser {
    fn with_token(name: &'static str, token: impl Into<String>) -> Self {
        Self {
            name,
            token: Some(token.into()),
            certificate: None,
        }
    }

    /// Returns `client` with the user's token, if it has one.
    pub(super) fn authenticated(&self, client: &Client) -> Client {
        match &self.token {
            Some(token) => client.as_token(token),
            None => client.clone(),
        }
    }
}

/// Creates all users and grants their rights.
pub(super) async fn create(server: &ApiServer) -> Vec<TestUser> {
    let admin = server.client();
    let all = ["get", "list", "watch"];
    let rule = |resources: &[&str], verbs: &[&str], names: &[&str]| {
        let mut rule = json!({"apiGroups": ["*"], "resources": resources, "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        json!([rule])
    };
    let any = &["*"][..];
    let user =
        |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let group =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"});
    for (name, rules, subject) in [
        ("lister", rule(any, &["list"], &[]), user("lister")),
        ("watcher", rule(any, &["watch"], &[]), user("watcher")),
        ("getter", rule(any, &["get"], &[]), user("getter")),
        (
            "certified",
            rule(&["pods", "secrets", "nodes"], &all, &[]),
            user("certified"),
        ),
        (
            "grouped",
            rule(&["pods", "widgets", "nodes"], &all, &[]),
            group,
        ),
    ] {
        grant(&admin, None, name, &rules, &subject).await;
    }
    let account = json!({"kind": "ServiceAccount", "name": "account", "namespace": NAMESPACE});
    for (name, rules, subject) in [
        ("ns-reader", rule(any, &all, &[]), user("ns-reader")),
        ("named", rule(any, &all, &["a"]), user("named")),
        (
            "account",
            rule(&["configmaps", "secrets"], &all, &[]),
            account,
        ),
    ] {
        grant(&admin, Some(NAMESPACE), name, &rules, &subject).await;
    }
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let account = json!({"metadata": {"name": "account"}});
    let account = admin.create(&accounts, &account).await.ok().json();
    let request = json!({"spec": {"expirationSeconds": 3600}});
    let path = format!("{accounts}/account/token");
    let issued = admin.create(&path, &request).await.ok().json();
    let issued = issued["status"]["token"].as_str().expect("a token");
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let expired = signed_token(server, NAMESPACE, &account["metadata"], hour_ago);
    let mut users: Vec<TestUser> = [
        ("cluster-admin", "admin-token"),
        ("namespace reader", "ns-reader-token"),
        ("resourceNames only", "named-token"),
        ("list without watch", "lister-token"),
        ("watch without list", "watcher-token"),
        ("get only", "getter-token"),
        ("bound by its group", "grouped-token"),
        ("garbage token", "no-such-token"),
    ]
    .map(|(name, token)| TestUser::with_token(name, token))
    .into();
    users.push(TestUser::with_token("service account", issued));
    users.push(TestUser::with_token("expired token", expired));
    let certified = |name, user, group, token: Option<&str>| TestUser {
        name,
        token: token.map(str::to_owned),
        certificate: Some(server.certificate(user, group)),
    };
    let foreign = Authority::new();
    users.extend([
        certified("client certificate", "certified", "any", None),
        certified(
            "certificate and token",
            "certified",
            "any",
            Some("getter-token"),
        ),
        certified("node", "system:node:n1", "system:nodes", None),
        TestUser {
            name: "foreign certificate",
            token: None,
            certificate: Some(foreign.client("admin", "system:masters")),
        },
        TestUser {
            certificate: Some(foreign.client("admin", "system:masters")),
            ..TestUser::with_token("foreign certificate and token", "getter-token")
        },
        TestUser {
            name: "none",
            token: None,
            certificate: None,
        },
    ]);
    users
}

/// The lines of `--token-auth-file` for the users with static tokens.
pub(super) const TOKENS: &str = "ns-reader-token,ns-reader,1
named-token,named,2
lister-token,lister,3
watcher-token,watcher,4
getter-token,getter,5
grouped-token,grouped,6,\"readers,others\"
";

/// Binds `subject` to a new role with `rules`, in a namespace or in the cluster.
pub(super) async fn grant(
    admin: &Client,
    namespace: Option<&str>,
    name: &str,
    rules: &Value,
    subject: &Value,
) {
    let (base, kind) = match namespace {
        Some(namespace) => (format!("{RBAC}/namespaces/{namespace}"), "Role"),
        None => (RBAC.to_owned(), "ClusterRole"),
    };
    let plural = kind.to_lowercase();
    let role = json!({"metadata": {"name": name}, "rules": rules});
    admin.create(&format!("{base}/{plural}s"), &role).await.ok();
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [subject],
    });
    admin
        .create(&format!("{base}/{plural}bindings"), &binding)
        .await
        .ok();
}

/// Creates a token of the service account with this metadata until `expiry`,
/// signed with the API server's key.
pub(super) fn signed_token(
    server: &ApiServer,
    namespace: &str,
    account: &Value,
    expiry: SystemTime,
) -> String {
    let expiry = expiry.duration_since(UNIX_EPOCH).expect("after 1970");
    let issuer = "https://kubernetes.default.svc";
    let name = account["name"].as_str().expect("a name");
    let claims = json!({
        "aud": [issuer],
        "iss": issuer,
        "exp": expiry.as_secs(),
        "iat": expiry.as_secs() - 600,
        "nbf": expiry.as_secs() - 600,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "kubernetes.io": {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": account["uid"]},
        },
    });
    let encoded = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let signed = format!("{}.{}", encoded(json!({"alg": "ES256"})), encoded(claims));
    let key = PrivateKeyDer::from_pem_file(server.directory().join("account.key"));
    let key = key.expect("a private key");
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_der());
    let signature = key
        .expect("a P-256 key")
        .sign(&SystemRandom::new(), signed.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(signature.expect("a signature"));
    format!("{signed}.{signature}")
}
