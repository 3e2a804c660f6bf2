//! Continue tokens: what is handed out is understood, and stands for the same place.

use kubefan::api::ContinueToken;
use kubefan::api::ObjectKey;
use kubefan::api::ResourceVersion;

/// Any text as a token, and any text as the place that a token names.
pub fn continue_token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match ContinueToken::decode(&text) {
        Ok(token) => {
            // A token of ours is as good as the client's, whatever way that was spelt.
            assert_eq!(ContinueToken::decode(&token.encode()).as_ref(), Ok(&token));
            let resumed = token.inconsistent();
            assert_eq!(ContinueToken::decode(&resumed.encode()), Ok(resumed));
        }
        Err(status) => {
            assert_eq!(status.code, 400, "{text:?}");
            assert!(
                status.message.starts_with("invalid continue token: "),
                "{text:?}"
            );
        }
    }
    encode(&text, data.len() as u64 + 1);
}

fn encode(name: &str, version: u64) {
    let version = ResourceVersion(version);
    for namespace in [None, Some("space")] {
        let token = ContinueToken::after(&ObjectKey::new(Some("space"), name), namespace, version);
        let encoded = token.encode();
        let is_url_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        assert!(encoded.bytes().all(is_url_safe), "{encoded:?}");
        // An object's name is a segment of a path; only such tokens are ever made.
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
