//! The requests that kubefan sends with its own rights, by the API server's audit log.

use std::collections::{BTreeMap, BTreeSet};
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

/// The API group of a rule for paths, such as `/metrics`, in the set of rights.
const NON_RESOURCE: &str = "nonResourceURLs";

/// What kubefan has used: its own rights with the answers' status codes,
/// and its rights to impersonate.
#[derive(Default)]
struct Used {
    own: BTreeMap<Right, BTreeSet<u64>>,
    impersonation: BTreeSet<Right>,
}

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

    /// Returns the flags of the API server.
    pub(super) fn flags(&self) -> [String; 3] {
        [
            format!("--audit-policy-file={}", self.file("policy").display()),
            format!("--audit-log-path={}", self.file("log").display()),
            "--audit-log-mode=blocking".to_owned(),
        ]
    }

    /// Returns what kubefan has used since the last call.
    fn since_last(&mut self) -> Used {
        let log = fs::read_to_string(self.file("log")).expect("an audit log");
        // The last line may not be complete.
        let end = log.rfind('\n').map_or(0, |end| end + 1);
        let mut used = Used::default();
        for line in log[self.read..end].lines() {
            let event: Value = serde_json::from_str(line).expect("an event");
            match event["impersonatedUser"].is_null() {
                true => used.take_own(&event),
                false => used.impersonation.extend(impersonation(&event)),
            }
        }
        self.read = end;
        used
    }

    /// Checks that kubefan was refused nothing since the last check, and needed all rights of these
    /// ClusterRoles, and no right that is neither in them nor in `others`.
    pub(super) async fn check(
        &mut self,
        server: &ApiServer,
        mode: &str,
        roles: &[&str],
        others: &[(&str, &str, &str)],
    ) {
        let Used { own, impersonation } = self.since_last();
        let refused = own.iter().filter(|(_, codes)| codes.contains(&403));
        assert_eq!(refused.collect::<Vec<_>>(), [], "{mode}");
        let given = rights(server, roles).await;
        let is_used = |(group, resource, verb): &Right| {
            let of_resource = |(used, _): &(&Right, _)| (&used.0, &used.1) == (group, resource);
            let mut verbs = own.iter().filter(of_resource).map(|(used, _)| &used.2);
            // With a watch-list, a cache of what does not change may need no list for long.
            verbs.any(|used| used == verb || used == "watch" && verb == "list")
        };
        let unused = given
            .difference(&impersonation)
            .filter(|right| !is_used(right));
        assert_eq!(unused.collect::<Vec<_>>(), Vec::<&Right>::new(), "{mode}");
        let is_given = |right: &Right| {
            let is_discovery = right.1.is_empty();
            let named = (&*right.0, &*right.1, &*right.2);
            is_discovery || given.contains(right) || others.contains(&named)
        };
        let more = own.keys().filter(|right| !is_given(right));
        assert_eq!(more.collect::<Vec<_>>(), Vec::<&Right>::new(), "{mode}");
        let (own, more) = (own.len(), impersonation.len());
        println!("{mode}: kubefan used {own} rights, {more} to impersonate, and was refused none");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Used {
    fn take_own(&mut self, event: &Value) {
        let object = &event["objectRef"];
        let right = (
            text(&object["apiGroup"]),
            text(&object["resource"]),
            text(&event["verb"]),
        );
        let code = event["responseStatus"]["code"].as_u64();
        self.own.entry(right).or_default().extend(code);
    }
}

/// Returns the rights of constrained impersonation that the API server has required for a request.
fn impersonation(event: &Value) -> Vec<Right> {
    let verb = text(&event["authenticationMetadata"]["impersonationConstraint"]);
    let mode = verb
        .strip_prefix("impersonate:")
        .expect("constrained impersonation");
    let user = &event["impersonatedUser"];
    let mut attributes = Vec::new();
    if mode == "user-info" {
        let groups = user["groups"].as_array().into_iter().flatten();
        // The API server adds this group itself.
        let are_sent = groups
            .into_iter()
            .any(|group| group != "system:authenticated");
        attributes.push("users".to_owned());
        attributes.extend(are_sent.then(|| "groups".to_owned()));
        attributes.extend(user["uid"].is_string().then(|| "uids".to_owned()));
        let extra = user["extra"].as_object().into_iter().flatten();
        attributes.extend(extra.map(|(key, _)| format!("userextras/{key}")));
    } else {
        attributes.push("nodes".to_owned());
    }
    let group = "authentication.k8s.io".to_owned();
    let own = attributes
        .into_iter()
        .map(|attribute| (group.clone(), attribute, verb.clone()));
    let on = format!("impersonate-on:{mode}:{}", text(&event["verb"]));
    let place = match event["objectRef"].is_object() {
        true => "*",
        false => NON_RESOURCE,
    };
    own.chain([(place.to_owned(), "*".to_owned(), on)])
        .collect()
}

/// Returns the rights that ClusterRoles give.
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
            for url in strings("nonResourceURLs") {
                for verb in strings("verbs") {
                    rights.insert((NON_RESOURCE.to_owned(), url.clone(), verb));
                }
            }
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
