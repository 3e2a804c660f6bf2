//! Reads the requests in the log of kubectl, as it is written with `-v=8`.
//!
//! Up to version 1.32 a request has a line for its method and URL, one for the word `Request
//! Headers:`, and one for each header. Later versions write one structured entry, whose headers
//! have a line each.

/// A request in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LoggedRequest {
    pub(super) method: String,
    /// The path and the query.
    pub(super) path: String,
    /// The headers, as `NAME: VALUE`.
    pub(super) headers: Vec<String>,
}

/// Where the next line of a request is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Nothing but the next request.
    Request,
    /// The line before the headers.
    HeadersBegin,
    /// An entry for each header.
    HeaderEntries,
    /// Lines of the same entry.
    HeaderLines,
}

/// Returns the requests in `log`, in their order. Other lines, such as those about answers, are
/// ignored.
pub(super) fn requests(log: &str) -> Vec<LoggedRequest> {
    let mut requests: Vec<LoggedRequest> = Vec::new();
    let mut expected = Expected::Request;
    for line in log.lines() {
        let line = line.trim_end_matches('\r');
        let Some(message) = message(line) else {
            // A line of the entry before.
            if expected == Expected::HeaderLines {
                match (line.trim(), requests.last_mut()) {
                    (">", _) => expected = Expected::Request,
                    (header, Some(request)) => request.headers.push(header.to_owned()),
                    (_, None) => {}
                }
            }
            continue;
        };
        if let Some((request, next)) = structured(message).or_else(|| plain(message)) {
            requests.push(request);
            expected = next;
            continue;
        }
        expected = match expected {
            Expected::HeadersBegin if message == "Request Headers:" => Expected::HeaderEntries,
            Expected::HeaderEntries if message.starts_with("    ") => {
                if let Some(request) = requests.last_mut() {
                    request.headers.push(message.trim().to_owned());
                }
                Expected::HeaderEntries
            }
            _ => Expected::Request,
        };
    }
    requests
}

/// Returns the text of an entry of klog; `None` if `line` does not begin with the header of one, such
/// as `I1128 09:58:38.046000   26127 round_trippers.go:527]`.
fn message(line: &str) -> Option<&str> {
    let bytes = line.as_bytes();
    let is_entry = bytes.len() > 5
        && matches!(bytes[0], b'I' | b'W' | b'E' | b'F')
        && bytes[1..5].iter().all(u8::is_ascii_digit);
    let (_, message) = line.split_once("] ").filter(|_| is_entry)?;
    Some(message)
}

/// Reads `GET https://127.0.0.1:6443/api/v1/pods`. A line that also has a status is about an answer.
fn plain(message: &str) -> Option<(LoggedRequest, Expected)> {
    let (method, url) = message.split_once(' ')?;
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let path = path_of(url).filter(|_| is_method && !url.contains(' '))?;
    let request = LoggedRequest {
        method: method.to_owned(),
        path,
        headers: Vec::new(),
    };
    Some((request, Expected::HeadersBegin))
}

/// Reads `"Request" verb="GET" url="https://127.0.0.1:6443/api/v1/pods" headers=<`.
fn structured(message: &str) -> Option<(LoggedRequest, Expected)> {
    let fields = message.strip_prefix("\"Request\" ")?;
    let method = quoted(fields, "verb=")?;
    let path = path_of(&quoted(fields, "url=")?)?;
    let headers = quoted(fields, "headers=").unwrap_or_default();
    let headers = headers.lines().map(str::trim);
    let headers = headers.filter(|header| !header.is_empty());
    let request = LoggedRequest {
        method,
        path,
        headers: headers.map(str::to_owned).collect(),
    };
    let next = if fields.ends_with("headers=<") {
        Expected::HeaderLines
    } else {
        Expected::Request
    };
    Some((request, next))
}

/// Returns the value after `key`, which Go's `strconv.Quote` has quoted.
fn quoted(fields: &str, key: &str) -> Option<String> {
    let (_, rest) = fields.split_once(key)?;
    let mut value = String::new();
    let mut characters = rest.strip_prefix('"')?.chars();
    loop {
        match characters.next()? {
            '"' => return Some(value),
            '\\' => value.push(match characters.next()? {
                'n' => '\n',
                't' => '\t',
                other => other,
            }),
            other => value.push(other),
        }
    }
}

/// Returns the path and the query of `url`.
fn path_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let is_http = matches!(scheme, "http" | "https");
    let path = rest.find(['/', '?']).map_or("", |at| &rest[at..]);
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    is_http.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kubectl 1.37 writes.
    const STRUCTURED: &str = "\
I1128 09:58:38.045862   26127 discovery_client.go:665] \"Request Body\" body=\"\"
I1128 09:58:38.046000   26127 round_trippers.go:527] \"Request\" verb=\"GET\" url=\"https://127.0.0.1:9/api?timeout=32s\" headers=<
\tAccept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json
\tAuthorization: Bearer <masked>
\tUser-Agent: kubectl/v1.37.1 (linux/amd64) kubernetes/$Format
 >
I1128 09:58:38.046767   26127 round_trippers.go:632] \"Response\" status=\"200 OK\" headers=<
\tAudit-Id: 3c7a
 > milliseconds=3
E1128 09:58:38.046848   26127 memcache.go:381] \"Couldn't get current server API group list\" err=\"Get \\\"http://127.0.0.1:9/api\\\": refused\"
I1128 09:58:38.047200   26127 round_trippers.go:527] \"Request\" verb=\"DELETE\" url=\"https://127.0.0.1:9/api/v1/namespaces/n/pods/p\" headers=\"Accept: application/json\"
";

    /// What kubectl 1.31 writes.
    const PLAIN: &str = "\
I0101 10:00:00.000001    4711 loader.go:395] Config loaded from file:  /home/user/.kube/config
I0101 10:00:00.000002    4711 round_trippers.go:463] GET https://[::1]:6443/api/v1/namespaces/default/pods?limit=500
I0101 10:00:00.000003    4711 round_trippers.go:469] Request Headers:
I0101 10:00:00.000004    4711 round_trippers.go:473]     Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json
I0101 10:00:00.000005    4711 round_trippers.go:473]     User-Agent: kubectl/v1.31.0 (linux/amd64) kubernetes/9edcffc
I0101 10:00:00.000006    4711 round_trippers.go:473]     Authorization: Bearer <masked>
I0101 10:00:00.000007    4711 round_trippers.go:574] Response Status: 200 OK in 12 milliseconds
I0101 10:00:00.000008    4711 round_trippers.go:577] Response Headers:
I0101 10:00:00.000009    4711 round_trippers.go:580]     Content-Type: application/json
I0101 10:00:00.000010    4711 request.go:1351] Response Body: {\"kind\":\"Table\"}
NAME   READY   STATUS    RESTARTS   AGE
I0101 10:00:00.000011    4711 round_trippers.go:463] POST https://example.com:6443
I0101 10:00:00.000012    4711 round_trippers.go:553] GET https://example.com:6443/livez 200 OK in 1 milliseconds
";

    fn request(method: &str, path: &str, headers: &[&str]) -> LoggedRequest {
        LoggedRequest {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: headers.iter().map(|&header| header.to_owned()).collect(),
        }
    }

    #[test]
    fn structured_entries_are_read() {
        let expected = [
            request(
                "GET",
                "/api?timeout=32s",
                &[
                    "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                    "Authorization: Bearer <masked>",
                    "User-Agent: kubectl/v1.37.1 (linux/amd64) kubernetes/$Format",
                ],
            ),
            request(
                "DELETE",
                "/api/v1/namespaces/n/pods/p",
                &["Accept: application/json"],
            ),
        ];
        assert_eq!(requests(STRUCTURED), expected);
    }

    #[test]
    fn plain_entries_are_read() {
        let expected = [
            request(
                "GET",
                "/api/v1/namespaces/default/pods?limit=500",
                &[
                    "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                    "User-Agent: kubectl/v1.31.0 (linux/amd64) kubernetes/9edcffc",
                    "Authorization: Bearer <masked>",
                ],
            ),
            request("POST", "/", &[]),
        ];
        assert_eq!(requests(PLAIN), expected);
    }

    #[test]
    fn other_text_has_no_requests() {
        for text in [
            "",
            "NAME READY\npod/a 1/1\n",
            "I0101 10:00:00.000001 1 x.go:1] GET of something",
            "I0101 10:00:00.000001 1 x.go:1] \"Request\" verb=\"GET",
            "\tAccept: application/json\n >",
            "GET https://127.0.0.1/api",
        ] {
            assert!(requests(text).is_empty(), "{text}");
        }
    }
}
