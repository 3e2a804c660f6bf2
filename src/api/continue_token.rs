//! The `continue` token of paged lists, in the API server's own format.
//!
//! Unpadded URL-safe base64 of `{"v":"meta.k8s.io/v1","rv":N,"start":"/KEY\u0000"}`, so tokens
//! can be handed on to the API server and tokens of its making are understood.

use super::ObjectKey;
use super::ResourceVersion;
use super::Status;
use super::go_text::quote_character;
use super::go_text::quote_json;

const VERSION: &str = "meta.k8s.io/v1";

/// Where the next page of a list begins, and in which state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The state that all pages show; `None` (-1 on the wire) takes the current state, which
    /// makes the list inconsistent with its first page.
    pub resource_version: Option<ResourceVersion>,
    /// The least key that the page may show, relative to the list's scope and without a leading
    /// `/`; usually the last key shown and a NUL.
    pub start: String,
}

impl ContinueToken {
    /// The token for what follows `last` in a list of `namespace` (`None`: of all).
    pub fn after(
        last: &ObjectKey,
        namespace: Option<&str>,
        resource_version: ResourceVersion,
    ) -> Self {
        let key = match namespace {
            Some(_) => last.name(),
            None => last.as_str(),
        };
        Self {
            resource_version: Some(resource_version),
            start: format!("{key}\0"),
        }
    }

    /// The least [`ObjectKey`], as text, that the next page of a list of `namespace` may show.
    pub fn start_key(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{namespace}/{}", self.start),
            None => self.start.clone(),
        }
    }

    /// The same place in the current state: what an expired list can be resumed with.
    pub fn inconsistent(&self) -> Self {
        Self {
            resource_version: None,
            start: self.start.clone(),
        }
    }

    /// The text for clients.
    pub fn encode(&self) -> String {
        let version = quote_json(VERSION);
        let start = quote_json(&format!("/{}", self.start));
        let json = match self.resource_version {
            Some(ResourceVersion(number)) => {
                format!(r#"{{"v":{version},"rv":{number},"start":{start}}}"#)
            }
            None => format!(r#"{{"v":{version},"rv":-1,"start":{start}}}"#),
        };
        base64_url(json.as_bytes())
    }

    /// Reads a client's token.
    ///
    /// # Errors
    /// The 400 that the API server answers; for damaged JSON inside, its wording may differ.
    pub fn decode(text: &str) -> Result<Self, Status> {
        Self::read(text)
            .map_err(|fault| Status::bad_request(format!("invalid continue token: {fault}")))
    }

    fn read(text: &str) -> Result<Self, String> {
        const INVALID: &str = "continue key is not valid";
        let bytes = decode_base64_url(text)
            .map_err(|at| format!("{INVALID}: illegal base64 data at input byte {at}"))?;
        let fields = Fields::parse(&bytes).map_err(|fault| format!("{INVALID}: {fault}"))?;
        if fields.version != VERSION {
            let version = fields.version;
            return Err(format!(
                "{INVALID}: server does not recognize this encoded version {version}"
            ));
        }
        if fields.resource_version == 0 {
            return Err(format!(
                "{INVALID}: incorrect encoded start resourceVersion (version {VERSION})"
            ));
        }
        if fields.start.is_empty() {
            return Err(format!(
                "{INVALID}: encoded start key empty (version {VERSION})"
            ));
        }
        let start = fields.start.strip_prefix('/').unwrap_or(&fields.start);
        // A start that leaves its scope, or spells one key in two ways, is refused.
        let is_plain = |segment: &str| !matches!(segment, "" | "." | "..");
        if !start.is_empty() && !start.split('/').all(is_plain) {
            return Err(format!("{INVALID}: {}", fields.start));
        }
        Ok(Self {
            resource_version: u64::try_from(fields.resource_version)
                .ok()
                .map(ResourceVersion),
            start: start.to_owned(),
        })
    }
}

/// What stands in the token's JSON.
#[derive(Default)]
struct Fields {
    version: String,
    resource_version: i64,
    start: String,
}

impl Fields {
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(bytes);
        let value = serde_json::from_str::<serde_json::Value>(&text)
            .map_err(|error| syntax_fault(bytes, &text, &error))?;
        let mut fields = Self::default();
        let object = match value {
            serde_json::Value::Object(object) => object,
            serde_json::Value::Null => return Ok(fields),
            other => {
                let found = type_name(&other);
                return Err(format!(
                    "json: cannot unmarshal {found} into Go value of type storage.continueToken"
                ));
            }
        };
        // The order in which tokens are written, and faults found.
        for name in ["v", "rv", "start"] {
            match (name, object.get(name)) {
                (_, None | Some(serde_json::Value::Null)) => {}
                ("v", Some(serde_json::Value::String(version))) => {
                    fields.version.clone_from(version);
                }
                ("start", Some(serde_json::Value::String(start))) => {
                    fields.start.clone_from(start);
                }
                ("rv", Some(value)) => {
                    let number = value.as_i64();
                    fields.resource_version =
                        number.ok_or_else(|| type_fault(name, value, "int64"))?;
                }
                (_, Some(value)) => return Err(type_fault(name, value, "string")),
            }
        }
        Ok(fields)
    }
}

fn type_fault(field: &str, value: &serde_json::Value, wanted: &str) -> String {
    let found = match (value, wanted) {
        (serde_json::Value::Number(number), "int64") => format!("number {number}"),
        _ => type_name(value).to_owned(),
    };
    format!(
        "json: cannot unmarshal {found} into Go struct field continueToken.{field} of type {wanted}"
    )
}

fn type_name(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "bool",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    }
}

/// Tells a fault of the JSON in Go's words, as far as the parser's words show which it is.
fn syntax_fault(bytes: &[u8], text: &str, error: &serde_json::Error) -> String {
    const VALUE_STARTS: &[u8] = b"{[\"-0123456789tfn";
    let first = bytes.iter().find(|byte| !b" \t\r\n".contains(byte));
    let (character, place) = match first {
        Some(byte) if !VALUE_STARTS.contains(byte) => {
            (char::from(*byte), "looking for beginning of value")
        }
        Some(_) if !error.is_eof() => {
            let line = text.split('\n').nth(error.line().saturating_sub(1));
            let rest = line.and_then(|line| line.get(error.column().saturating_sub(1)..));
            let character = rest.and_then(|rest| rest.chars().next());
            (
                character.unwrap_or('\u{fffd}'),
                place_of(&error.to_string()),
            )
        }
        _ => match text.rsplit_once('\\').map(|(_, escape)| escape) {
            // Go takes the end for a blank where an escape is cut off.
            Some("") => (' ', "in string escape code"),
            Some(escape) if escape.starts_with('u') && escape.len() < 5 => {
                (' ', "in \\u hexadecimal character escape")
            }
            _ => return "unexpected end of JSON input".to_owned(),
        },
    };
    format!("invalid character {} {place}", quote_character(character))
}

fn place_of(fault: &str) -> &'static str {
    const PLACES: [(&str, &str); 8] = [
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("expected `:`", "after object key"),
        (
            "key must be a string",
            "looking for beginning of object key string",
        ),
        ("trailing characters", "after top-level value"),
        ("control character", "in string literal"),
        ("invalid escape", "in string escape code"),
        ("invalid number", "in numeric literal"),
    ];
    PLACES
        .iter()
        .find(|(start, _)| fault.starts_with(start))
        .map_or("looking for beginning of value", |(_, place)| place)
}

fn base64_url(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes as Go's `RawURLEncoding` does: line breaks are skipped, left-over bits ignored.
///
/// # Errors
/// The index of the first byte at fault.
fn decode_base64_url(text: &str) -> Result<Vec<u8>, usize> {
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for (index, byte) in text.bytes().enumerate() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            b'\r' | b'\n' => continue,
            _ => return Err(index),
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    // A lone character behind the last group of four carries no whole byte.
    match count {
        6 => Err(text.len() - 1),
        _ => Ok(decoded),
    }
}

#[cfg(test)]
mod tests;
