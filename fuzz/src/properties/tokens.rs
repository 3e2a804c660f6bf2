//! Continue tokens: an encoded token decodes to the same one, as a reference confirms.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use kubefan::api::{ContinueToken, ObjectKey, ResourceVersion};
use serde_json::Value;

/// Decodes any text as a continue token, and encodes a token whose key is any text.
pub fn continue_token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match ContinueToken::decode(&text) {
        Ok(token) => {
            let (version, start) = reference(&text).expect("an accepted token is JSON");
            assert_eq!(token.start, start, "{text:?}");
            assert_eq!(
                token.resource_version.map(|version| version.0),
                version,
                "{text:?}"
            );
            // kubefan's spelling of the token decodes to the same token as the client's spelling.
            assert_eq!(ContinueToken::decode(&token.encode()).as_ref(), Ok(&token));
            let resumed = token.inconsistent();
            assert_eq!(ContinueToken::decode(&resumed.encode()), Ok(resumed));
        }
        Err(malformed) => assert_eq!(malformed.parameter, "continue", "{text:?}"),
    }
    encode(&text, data.len() as u64 + 1);
}

/// The version and the start key in a token, decoded with base64 and serde_json.
fn reference(text: &str) -> Option<(Option<u64>, String)> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    let one_line = text.replace(['\r', '\n'], "");
    let json = GeneralPurpose::new(&URL_SAFE, config)
        .decode(one_line)
        .ok()?;
    let fields = serde_json::from_str::<Value>(&String::from_utf8_lossy(&json)).ok()?;
    let start = fields["start"].as_str()?;
    let start = start.strip_prefix('/').unwrap_or(start).to_owned();
    Some((fields["rv"].as_u64(), start))
}

fn encode(name: &str, version: u64) {
    let version = ResourceVersion(version);
    for namespace in [None, Some("space")] {
        let token = ContinueToken::after(&ObjectKey::new(Some("space"), name), namespace, version);
        let encoded = token.encode();
        let is_url_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        assert!(encoded.bytes().all(is_url_safe), "{encoded:?}");
        // Tokens are made only for objects, whose names are not empty and contain no slash.
        if !name.is_empty() && !name.contains('/') {
            assert_eq!(
                ContinueToken::decode(&encoded).as_ref(),
                Ok(&token),
                "{name:?}"
            );
            let start = token.start_key(namespace);
            assert_eq!(start, format!("space/{name}\0"));
        }
    }
}
