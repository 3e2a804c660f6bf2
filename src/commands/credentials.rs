//! The credentials of a kubeconfig's context, as they are copied into a kubeconfig for kubefan.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// Where a pod finds the token of its service account.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The credentials and the namespace of a kubeconfig's context.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Credentials {
    /// The entry `user` of the kubeconfig. Paths in it are absolute.
    pub(super) user: Value,
    /// The context's namespace, if it has one.
    pub(super) namespace: Option<String>,
}

/// A kubeconfig file that was read.
struct File {
    directory: PathBuf,
    content: Value,
}

impl Credentials {
    /// Reads the credentials of `context` from `kubeconfig`. The default files are those of
    /// kubectl, or the service account if this is a pod; the default context is the current one.
    ///
    /// # Errors
    /// If a file cannot be read, there is no such context or user, or kubefan cannot use the
    /// credentials.
    pub(super) fn read(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Self> {
        let paths = match kubeconfig {
            Some(path) => vec![path.to_owned()],
            None => default_paths(),
        };
        let mut files = Vec::new();
        for path in paths {
            match fs::read_to_string(&path) {
                Ok(text) => files.push(File::parse(&path, &text)?),
                // As in kubectl, some of several files may be missing.
                Err(error)
                    if kubeconfig.is_none() && error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot read {}", path.display()));
                }
            }
        }
        if files.is_empty() {
            if env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
                return Ok(Self {
                    user: json!({ "tokenFile": POD_TOKEN }),
                    namespace: None,
                });
            }
            bail!("there is no kubeconfig to copy credentials from; name one with --kubeconfig");
        }
        Self::of_context(&files, context)
    }

    fn of_context(files: &[File], context: Option<&str>) -> anyhow::Result<Self> {
        let current = || {
            let mut names = files
                .iter()
                .map(|file| text(&file.content["current-context"]));
            names.find(|name| !name.is_empty())
        };
        let Some(name) = context.or_else(current) else {
            bail!("the kubeconfig has no current context; choose one with --context");
        };
        let Some((_, context)) = find(files, "contexts", name) else {
            bail!("the kubeconfig has no context {name:?}");
        };
        let context = &context["context"];
        let user = text(&context["user"]);
        let Some((directory, entry)) = find(files, "users", user) else {
            bail!("context {name:?} names the user {user:?}, which the kubeconfig does not have");
        };
        let mut user = entry["user"].clone();
        check(&user).with_context(|| format!("context {name:?}"))?;
        resolve_paths(&mut user, directory);
        let namespace = text(&context["namespace"]);
        Ok(Self {
            user,
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        })
    }
}

impl File {
    fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
        let content = serde_saphyr::from_str(text);
        let content = content.map_err(|error| {
            // The message must not show the line, because it may contain a token.
            tracing::debug!(%error, "the kubeconfig is not YAML");
            anyhow::anyhow!("{} is not YAML", path.display())
        })?;
        let path = std::path::absolute(path)?;
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self { directory, content })
    }
}

/// Returns the files that `KUBECONFIG` names, or `~/.kube/config`.
fn default_paths() -> Vec<PathBuf> {
    match env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        Some(paths) => env::split_paths(&paths)
            .filter(|path| !path.as_os_str().is_empty())
            .collect(),
        None => {
            let home = env::var_os("HOME").filter(|home| !home.is_empty());
            let config = home.map(|home| PathBuf::from(home).join(".kube/config"));
            config.into_iter().collect()
        }
    }
}

/// Returns the first entry with this name in a list of the files, and the directory of its file.
fn find<'a>(files: &'a [File], list: &str, name: &str) -> Option<(&'a Path, &'a Value)> {
    files.iter().find_map(|file| {
        let entries = file.content[list].as_array()?;
        let entry = entries.iter().find(|entry| text(&entry["name"]) == name)?;
        Some((file.directory.as_path(), entry))
    })
}

/// Returns an error if the API server or kubefan would not accept the credentials.
fn check(user: &Value) -> anyhow::Result<()> {
    // An empty text counts as no value.
    let has = |key: &str| !user[key].is_null() && user[key].as_str() != Some("");
    if has("auth-provider") {
        bail!("auth-provider is not supported by clients any more; use an exec plugin");
    }
    let has_certificate = has("client-certificate") || has("client-certificate-data");
    if has_certificate && !(has("client-key") || has("client-key-data")) {
        bail!("the client certificate has no key");
    }
    let has_token = has("token") || has("tokenFile");
    if !(has_certificate || has_token || has("exec")) {
        if has("username") {
            bail!("API servers accept no user name with a password; use another context")
        } else {
            bail!("the user has no credentials, so kubefan would not know its callers")
        }
    }
    if has_certificate && has("as") {
        bail!("kubefan refuses to impersonate (as) for users of client certificates");
    }
    Ok(())
}

/// Makes paths absolute. They are relative to the `directory` of the kubeconfig; the command of an
/// exec plugin is a path only if it has a slash.
fn resolve_paths(user: &mut Value, directory: &Path) {
    for key in ["client-certificate", "client-key", "tokenFile"] {
        resolve(&mut user[key], directory);
    }
    let command = &mut user["exec"]["command"];
    if text(command).contains('/') {
        resolve(command, directory);
    }
    // The lookup of a missing key has added the key.
    remove_nulls(user);
}

fn resolve(value: &mut Value, directory: &Path) {
    let path = text(value);
    if !path.is_empty() {
        *value = json!(directory.join(path));
    }
}

fn remove_nulls(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.values_mut().for_each(remove_nulls);
        map.retain(|_, value| {
            !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty())
        });
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "
current-context: token
contexts:
- {name: token, context: {cluster: c, user: token, namespace: shop}}
- {name: files, context: {cluster: c, user: files}}
- {name: inline, context: {cluster: c, user: inline}}
- {name: exec, context: {cluster: c, user: exec}}
- {name: path-exec, context: {cluster: c, user: path-exec}}
- {name: none, context: {cluster: c, user: none}}
- {name: empty, context: {cluster: c, user: empty}}
- {name: basic, context: {cluster: c, user: basic}}
- {name: provider, context: {cluster: c, user: provider}}
- {name: keyless, context: {cluster: c, user: keyless}}
- {name: acting, context: {cluster: c, user: acting}}
- {name: lost, context: {cluster: c, user: nobody}}
users:
- {name: token, user: {token: 'a: b'}}
- {name: files, user: {client-certificate: sub/a.crt, client-key: /k, tokenFile: ../t}}
- {name: inline, user: {client-certificate-data: QQ==, client-key-data: Qg==}}
- name: exec
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, args: [eks], env: null,
           interactiveMode: IfAvailable}
- {name: path-exec, user: {exec: {apiVersion: v, command: bin/plugin}}}
- {name: none, user: {}}
- {name: empty, user: {token: ''}}
- {name: basic, user: {username: u, password: p}}
- {name: provider, user: {auth-provider: {name: gcp}}}
- {name: keyless, user: {client-certificate-data: QQ==}}
- {name: acting, user: {client-certificate-data: QQ==, client-key-data: Qg==, as: jane}}
";

    fn of(context: Option<&str>) -> anyhow::Result<Credentials> {
        let file = File::parse(Path::new("/etc/k/config"), CONFIG).expect("YAML");
        Credentials::of_context(&[file], context)
    }

    #[test]
    fn every_kind_of_credentials_is_copied() {
        let found = of(None).expect("credentials");
        assert_eq!(found.user, json!({"token": "a: b"}));
        assert_eq!(found.namespace.as_deref(), Some("shop"));
        for (context, expected) in [
            (
                "files",
                json!({
                    "client-certificate": "/etc/k/sub/a.crt",
                    "client-key": "/k",
                    "tokenFile": "/etc/k/../t",
                }),
            ),
            (
                "inline",
                json!({"client-certificate-data": "QQ==", "client-key-data": "Qg=="}),
            ),
            (
                "exec",
                json!({"exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "aws",
                    "args": ["eks"],
                    "interactiveMode": "IfAvailable",
                }}),
            ),
            (
                "path-exec",
                json!({"exec": {"apiVersion": "v", "command": "/etc/k/bin/plugin"}}),
            ),
        ] {
            let found = of(Some(context)).expect(context);
            assert_eq!(found.user, expected, "{context}");
            assert_eq!(found.namespace, None, "{context}");
        }
    }

    #[test]
    fn useless_credentials_are_reported_in_plain_words() {
        for (context, expected) in [
            ("missing", "the kubeconfig has no context \"missing\""),
            (
                "lost",
                "names the user \"nobody\", which the kubeconfig does not have",
            ),
            ("none", "has no credentials"),
            ("empty", "has no credentials"),
            ("basic", "accept no user name with a password"),
            ("provider", "use an exec plugin"),
            ("keyless", "has no key"),
            ("acting", "refuses to impersonate"),
        ] {
            let error = of(Some(context)).expect_err(context);
            let message = format!("{error:#}");
            assert!(message.contains(expected), "{context}: {message}");
        }
    }

    #[test]
    fn an_entry_of_the_first_file_wins() {
        let file = |path: &str, text: &str| File::parse(Path::new(path), text).expect("YAML");
        let files = [
            file("/a/c", "users: [{name: u, user: {tokenFile: t}}]"),
            file("/b/c", CONFIG),
            file(
                "/c/c",
                "current-context: y\ncontexts: [{name: x, context: {user: u}}]\n\
                 users: [{name: u, user: {token: other}}]",
            ),
        ];
        let found = Credentials::of_context(&files, Some("x")).expect("credentials");
        assert_eq!(found.user, json!({"tokenFile": "/a/t"}));
        let current = Credentials::of_context(&files, None).expect("credentials");
        assert_eq!(current.namespace.as_deref(), Some("shop"));
    }

    #[test]
    fn a_broken_file_does_not_show_its_text() {
        let parsed = File::parse(Path::new("/x"), "token: [secret");
        let message = format!("{:#}", parsed.err().expect("not YAML"));
        assert_eq!(message, "/x is not YAML");
    }
}
