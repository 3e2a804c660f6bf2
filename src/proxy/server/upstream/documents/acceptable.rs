//! Decides whether a request accepts a document that was sent for another `Accept` header.

use http::{HeaderMap, HeaderValue, header};

/// The media type that the API server sends to clients that accept everything.
const DEFAULT: &str = "application/json";

/// A media type with its parameters, in the order of their names.
struct MediaType {
    name: String,
    parameters: Vec<(String, String)>,
    /// True unless the media type is excluded by `q=0`.
    is_accepted: bool,
}

impl MediaType {
    fn parse(text: &str) -> Self {
        let mut parts = text.split(';').map(|part| part.trim().to_ascii_lowercase());
        let mut parsed = Self {
            name: parts.next().unwrap_or_default(),
            parameters: Vec::new(),
            is_accepted: true,
        };
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((&part, ""));
            match (name.trim(), value.trim()) {
                ("q", quality) => parsed.is_accepted = quality.parse() != Ok(0.0),
                ("charset", _) => {}
                (name, value) => parsed.parameters.push((name.to_owned(), value.to_owned())),
            }
        }
        parsed.parameters.sort_unstable();
        parsed
    }

    /// Returns true if a client that accepts this media type can read a document of the type
    /// `other`.
    fn includes(&self, other: &Self) -> bool {
        let is_of_name = match self.name.as_str() {
            "*/*" | "application/*" => other.name == DEFAULT,
            name => name == other.name,
        };
        self.is_accepted && is_of_name && self.parameters == other.parameters
    }
}

/// Returns the place of the first media type in the `Accept` header that matches a document with
/// `headers`; `None` if the request does not accept the document.
pub(super) fn place_in(
    accept: Option<&HeaderValue>,
    accept_encoding: Option<&HeaderValue>,
    headers: &HeaderMap,
) -> Option<usize> {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING) {
        let encoding = text(encoding);
        let accepted = accept_encoding.map(text).unwrap_or_default();
        let mut accepted = accepted.split(',').map(MediaType::parse);
        accepted.find(|accepted| accepted.is_accepted && accepted.name == encoding)?;
    }
    let own = MediaType::parse(&text(headers.get(header::CONTENT_TYPE)?));
    let accept = accept.map_or_else(|| "*/*".to_owned(), text);
    let mut accepted = accept.split(',').map(MediaType::parse);
    accepted.position(|accepted| accepted.includes(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(accept: Option<&'static str>, encodings: &'static str, of: [&'static str; 2]) -> i32 {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(of[0]));
        if !of[1].is_empty() {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(of[1]));
        }
        let accept = accept.map(HeaderValue::from_static);
        let encodings = HeaderValue::from_static(encodings);
        let place = place_in(accept.as_ref(), Some(&encodings), &headers);
        place.map_or(-1, |place| i32::try_from(place).expect("a small number"))
    }

    #[test]
    fn a_document_is_for_those_that_accept_its_type_and_encoding() {
        const PLAIN: [&str; 2] = ["application/json", ""];
        const ALL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        for (accept, encodings, document, expected) in [
            (None, "", PLAIN, 0),
            (Some("application/json, */*"), "", PLAIN, 0),
            (Some("application/yaml, */*"), "", PLAIN, 1),
            (
                Some("application/json"),
                "",
                ["Application/JSON; charset=utf-8", ""],
                0,
            ),
            (Some("application/vnd.kubernetes.protobuf"), "", PLAIN, -1),
            (Some("application/json;q=0, text/plain"), "", PLAIN, -1),
            // Only JSON is for those that accept anything.
            (
                Some("*/*"),
                "",
                ["application/vnd.kubernetes.protobuf", ""],
                -1,
            ),
            // Another form of the document.
            (Some("application/json"), "", [ALL, ""], -1),
            (Some(ALL), "", PLAIN, -1),
            (
                Some("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io;q=0.9"),
                "",
                [ALL, ""],
                0,
            ),
            (
                Some("application/json"),
                "gzip",
                ["application/json", "gzip"],
                0,
            ),
            (
                Some("application/json"),
                "br, gzip;q=0.5",
                ["application/json", "gzip"],
                0,
            ),
            (
                Some("application/json"),
                "gzip;q=0",
                ["application/json", "gzip"],
                -1,
            ),
            (
                Some("application/json"),
                "",
                ["application/json", "gzip"],
                -1,
            ),
        ] {
            let found = place(accept, encodings, document);
            assert_eq!(found, expected, "{accept:?} {encodings:?} {document:?}");
        }
    }
}
