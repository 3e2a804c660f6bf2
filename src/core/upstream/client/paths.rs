//! What the path of a request shows.

use percent_encoding::percent_decode_str;

/// Returns true if `path` has a segment `.` or `..`, percent-encoded or not. An encoded slash
/// separates segments too.
pub fn has_dot_segment(path: &str) -> bool {
    if !path.contains(['.', '%']) {
        return false;
    }
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    decoded
        .split('/')
        .any(|segment| matches!(segment, "." | ".."))
}

/// Returns true if a pod, service or node answers requests for `path`, through the API server's
/// proxy. A 401 from it refuses other credentials than kubefan's.
pub(in crate::upstream) fn is_answered_by_backend(path: &str) -> bool {
    let segments: Vec<_> = path.split('/').collect();
    let is_proxy = |window: &[&str]| {
        matches!(window[0], "pods" | "services" | "nodes") && window[2] == "proxy"
    };
    segments.windows(3).any(is_proxy)
}
