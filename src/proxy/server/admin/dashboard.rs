//! The dashboard: a page that shows the admin API in a browser. Its files are in the program.
//!
//! The files have no data, so everyone may get them, like the page of a login. The page reads the
//! admin API with the rights of its user. It keeps the user's token in memory, and has neither
//! cookies nor storage. Names that clients choose are shown as text; if one became markup after
//! all, the policy below lets the browser run and apply nothing but these files.

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use kubefan_core::body;
use kubefan_core::body::Body;

use crate::server::answers::rescue;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The headers of each file, besides its type. `tests/browser/server.mjs` reads them here.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-embedder-policy", "require-corp"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// A file of the page.
struct File {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

/// The file with this name, below `/dashboard/`.
macro_rules! file_below {
    ($name:literal, $content_type:expr) => {
        File {
            path: concat!("/dashboard/", $name),
            content_type: $content_type,
            text: include_str!(concat!("dashboard/", $name)),
        }
    };
}

static FILES: [File; 11] = [
    File {
        path: "/",
        content_type: HTML,
        text: include_str!("dashboard/index.html"),
    },
    file_below!("style.css", CSS),
    file_below!("api.js", SCRIPT),
    file_below!("dom.js", SCRIPT),
    file_below!("flow.js", SCRIPT),
    file_below!("format.js", SCRIPT),
    file_below!("history.js", SCRIPT),
    file_below!("main.js", SCRIPT),
    file_below!("panels.js", SCRIPT),
    file_below!("summary.js", SCRIPT),
    file_below!("table.js", SCRIPT),
];

/// Returns true if the sender of a request for `/` wants a page. Browsers name HTML; curl does not.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter();
    accepted.any(|value| value.to_str().is_ok_and(|text| text.contains("text/html")))
}

/// Returns the file with this path, or `None` if there is none.
pub(super) fn answer(path: &str) -> Option<Response<Body>> {
    let file = FILES.iter().find(|file| file.path == path)?;
    let text = Bytes::from_static(file.text.as_bytes());
    let mut response = rescue::answer(file.content_type, body::full(text));
    let headers = response.headers_mut();
    // The files of an older kubefan must not read the API of a newer one.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

#[cfg(test)]
mod tests;
