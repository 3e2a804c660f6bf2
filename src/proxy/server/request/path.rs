//! Classifies the spelling of a path: some spellings mean different things to different programs.

use kubefan_core::upstream;
use percent_encoding::percent_decode_str;

/// The spelling of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathForm {
    /// All programs read the path in the same way.
    Plain,
    /// The path has an empty segment (`//`). The API server's router and its request info disagree
    /// about such a path.
    EmptySegment,
    /// The path has a segment `.` or `..`, encoded or not. A proxy in between may resolve it.
    DotSegment,
    /// The path has an encoded slash (`%2F`) in the part that names the resource.
    EncodedSlash,
}

impl PathForm {
    /// Returns the spelling of `path`, as written in the request line. The part after `/proxy/`
    /// belongs to a server behind the API server, and may have encoded slashes.
    pub(crate) fn of(path: &str) -> Self {
        if !path.contains(['%', '.']) && !path.contains("//") {
            return Self::Plain;
        }
        if upstream::has_dot_segment(path) {
            return Self::DotSegment;
        }
        let mut form = Self::Plain;
        let segments: Vec<_> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
        let proxied = first_proxied_segment(&segments);
        for (index, segment) in segments.iter().enumerate() {
            let decoded = percent_decode_str(segment).decode_utf8_lossy();
            let is_empty = decoded.is_empty() && index + 1 < segments.len();
            if decoded.contains('/') && proxied.is_none_or(|proxied| index < proxied) {
                form = Self::EncodedSlash;
            } else if is_empty && form == Self::Plain {
                form = Self::EmptySegment;
            }
        }
        form
    }
}

/// Returns the index of the first segment of the path that is passed on to a node, pod or service
/// behind the API server; `None` if the path is not proxied.
fn first_proxied_segment(segments: &[&str]) -> Option<usize> {
    match segments {
        ["api", _, "nodes", _, "proxy", ..] => Some(5),
        [
            "api",
            _,
            "namespaces",
            _,
            "pods" | "services",
            _,
            "proxy",
            ..,
        ] => Some(7),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_paths() {
        use PathForm::{DotSegment, EmptySegment, EncodedSlash, Plain};
        for (path, expected) in [
            ("/", Plain),
            ("/api/v1/pods", Plain),
            ("/api/v1/pods/", Plain),
            ("/api/v1/namespaces/x/pods/a.b..c", Plain),
            ("/api/v1/namespaces/x/pods/%C3%A9%20", Plain),
            ("/apis/rbac.authorization.k8s.io/v1/roles", Plain),
            ("//api/v1/pods", EmptySegment),
            ("/api/v1//pods", EmptySegment),
            ("/api/v1/pods//", EmptySegment),
            ("/api/v1/namespaces//pods", EmptySegment),
            ("/../v3/x", DotSegment),
            ("/api/v1/namespaces/x/pods/..", DotSegment),
            ("/api/v1/namespaces/x/pods/%2e%2E", DotSegment),
            ("/api/v1/./pods", DotSegment),
            ("/api/v1//pods/..", DotSegment),
            ("/api/v1/nodes/n/proxy/../x", DotSegment),
            ("/api/v1/pods%2Fp", EncodedSlash),
            ("/api/v1/namespaces/x%2fy/pods", EncodedSlash),
            ("/api/v1/namespaces/x/pods/a%252Fb", Plain),
            ("/api/v1/namespaces/proxy/pods/a%2Fb", EncodedSlash),
            (
                "/apis/apps/v1/namespaces/proxy/deployments%2Fx",
                EncodedSlash,
            ),
            ("/apis/g/v1/things/proxy/a%2Fb", EncodedSlash),
            ("/api/v1/nodes/n/proxy/..%2F..%2Fx", DotSegment),
            ("/api/v1/nodes/n/proxy/a%2F..", DotSegment),
            ("/api/v1/nodes/n/proxy/a%2Fb", Plain),
            (
                "/api/v1/namespaces/x/services/s/proxy/a%2Fb//c",
                EmptySegment,
            ),
            ("/api/v1/namespaces/x/services/s/proxy/a%2Fb", Plain),
        ] {
            assert_eq!(PathForm::of(path), expected, "{path}");
        }
    }
}
