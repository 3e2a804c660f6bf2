//! The requests that kubefan sends with its own rights, by the API server's audit log.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::programs::apiserver::ApiServer;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    users: ["system:serviceaccount:kubefan:kubefan"]
  - level: None
"#;

/// An API group, a resource and a verb.
pub(super) type Right = (String, String, String);

/// The audit log of an API server, which has only requests with kubefan's credentials.
pub(super) struct OwnRequests {
    directory: TempDir,
    /// The part of the log that was read.
    read: usize,
}

impl OwnRequests {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let requests = Self { directory, read: 0 };
        fs::write(requests.file("policy"), POLICY).expect("room");
        requests
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The flags of the API server.
    pub(super) fn flags(&self) -> [String; 3] {
        [
            format!("--audit-policy-file={}", self.file("policy").display()),
            format!("--audit-log-path={}", self.file("log").display()),
            "--audit-log-mode=blocking".to_owned(),
        ]
    }

    /// What kubefan has used since the last call, without what it forwarded by impersonation, and
    /// the status codes.
    pub(super) fn since_last(&mut self) -> BTreeMap<Right, BTreeSet<u64>> {
        let log = fs::read_to_string(self.file("log")).expect("an audit log");
        // The last line may not be complete.
        let end = log.rfind('\n').map_or(0, |end| end + 1);
        let lines = log[self.read..end].lines();
        let events = lines.map(|line| serde_json::from_str::<Value>(line).expect("an event"));
        let mut used = BTreeMap::<_, BTreeSet<u64>>::new();
        for event in events.filter(|event| event["impersonatedUser"].is_null()) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &event["objectRef"];
            let right = (
                text(&object["apiGroup"]),
                text(&object["resource"]),
                text(&event["verb"]),
            );
            let code = event["responseStatus"]["code"].as_u64();
            used.entry(right).or_default().extend(code);
        }
        self.read = end;
        used
    }
}

/// The rights that ClusterRoles give.
pub(super) async fn rights(server: &ApiServer, roles: &[&str]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for role in roles {
        let role = server.client().get(&format!("{ROLES}/{role}")).await;
        let role = role.ok().json();
        for rule in role["rules"].as_array().expect("rules") {
            let strings = |key: &str| {
                let values = rule[key].as_array().into_iter().flatten();
                let values = values.map(|value| value.as_str().expect("a text").to_owned());
                values.collect::<Vec<_>>()
            };
            for group in strings("apiGroups") {
                for resource in strings("resources") {
                    for verb in strings("verbs") {
                        rights.insert((group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
    }
    rights
}
