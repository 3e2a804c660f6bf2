//! The paths, and what the answer of each needs.

use std::fs;

use serde_json::Value;

use crate::repository::{document, root};

/// The pages that show programs to callers with the right to get `/metrics`.
const PAGES_WITH_PROGRAMS: [&str; 4] = ["advice", "bill", "clients", "events"];

/// What an answer needs of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing, because it has no data.
    Nothing,
    /// The right to get `/metrics`.
    Metrics,
    /// The right to get `/admin/v1/users`.
    Names,
    /// Credentials, if clients are authenticated.
    Identity,
}

/// A path, and the status for callers that have what it needs.
pub(super) struct Row {
    pub(super) path: String,
    pub(super) need: Need,
    pub(super) status: u16,
    pub(super) may_show_programs: bool,
}

// === impl Row ===

impl Row {
    fn new(path: impl Into<String>, need: Need, status: u16) -> Self {
        Self {
            path: path.into(),
            need,
            status,
            may_show_programs: false,
        }
    }

    /// Returns the row of a path of the admin API, which the OpenAPI document describes.
    fn of_api(path: &str, operation: &Value) -> Self {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let required = parameters.filter(|parameter| parameter["required"] == true);
        let query = required.map(|parameter| {
            let name = parameter["name"].as_str().expect("a name");
            format!("{name}=/version")
        });
        let query = query.collect::<Vec<_>>().join("&");
        let need = match path {
            "/admin/v1/users" => Need::Names,
            "/admin/v1/why" => Need::Identity,
            _ => Need::Metrics,
        };
        let name = path.rsplit('/').next().unwrap_or_default();
        Self {
            path: match query.as_str() {
                "" => path.to_owned(),
                query => format!("{path}?{query}"),
            },
            need,
            status: 200,
            may_show_programs: PAGES_WITH_PROGRAMS.contains(&name),
        }
    }

    pub(super) fn is_of_api(&self) -> bool {
        self.path == "/admin" || self.path.starts_with("/admin/")
    }
}

/// Returns the row of each path.
pub(super) fn rows() -> Vec<Row> {
    let api: Value = serde_json::from_str(&document("docs/admin-api.json")).expect("JSON");
    let paths = api["paths"].as_object().expect("paths").iter();
    let of_api = paths.map(|(path, operations)| Row::of_api(path, &operations["get"]));
    let mut rows: Vec<_> = of_api.collect();
    assert!(rows.len() >= 12, "only {} paths", rows.len());
    for (path, need, status) in [
        ("/metrics", Need::Metrics, 200),
        ("/readyz?verbose", Need::Metrics, 200),
        ("/livez", Need::Nothing, 200),
        ("/healthz", Need::Nothing, 200),
        ("/readyz", Need::Nothing, 200),
        ("/", Need::Nothing, 200),
        ("/nosuch", Need::Nothing, 404),
        ("/admin", Need::Metrics, 404),
        ("/admin/v1/none", Need::Metrics, 404),
        // Other spellings of the path of the names.
        ("/admin/v1/users?verbose", Need::Names, 200),
        ("/admin/v1/users/", Need::Metrics, 404),
        ("/admin/v1/./users", Need::Metrics, 404),
        ("/admin/v1/caches/../users", Need::Metrics, 404),
        ("/admin/v1/%75sers", Need::Metrics, 404),
        ("/%61dmin/v1/users", Need::Nothing, 404),
        ("//admin/v1/users", Need::Nothing, 404),
        ("/ADMIN/v1/users", Need::Nothing, 404),
    ] {
        rows.push(Row::new(path, need, status));
    }
    let files = fs::read_dir(root().join("src/proxy/server/admin/dashboard"));
    let files = files.expect("the folder").map(|entry| {
        let name = entry.expect("an entry").file_name();
        name.into_string().expect("text")
    });
    let assets = files.filter(|name| name.ends_with(".js") || name.ends_with(".css"));
    rows.extend(assets.map(|name| Row::new(format!("/dashboard/{name}"), Need::Nothing, 200)));
    rows
}
