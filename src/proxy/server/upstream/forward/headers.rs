//! Sets the headers of a forwarded request that identify its sender.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use kubefan_core::api::Status;
use kubefan_core::upstream::Identity;

use crate::identity::{Caller, impersonate};

/// The addresses of a request's client and of the proxies before kubefan.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Adds the headers that identify `caller` to `headers`. Returns the identity that the request is
/// sent with.
///
/// # Errors
/// A 403 if the caller's user cannot be impersonated.
pub(super) fn prepare(headers: &mut HeaderMap, caller: &Caller) -> Result<Identity, Status> {
    match caller {
        Caller::Trusted | Caller::Impersonating => Ok(Identity::Kubefan),
        Caller::Known(known) if known.is_impersonated() => {
            let impersonated = impersonate(headers, known.user());
            impersonated.map_err(|error| Status::failure(403, "Forbidden", error.to_string()))?;
            Ok(Identity::Kubefan)
        }
        Caller::Known(_) | Caller::Unknown | Caller::Unnamed(_) | Caller::Refused => {
            Ok(Identity::Caller)
        }
    }
}

/// Appends the client's address to the addresses of the proxies before it, as Go's reverse proxy
/// does. The API server's audit log has all of them as `sourceIPs`.
pub(super) fn append_forwarded_for(headers: &mut HeaderMap, address: IpAddr) {
    let mut all = Vec::new();
    for line in headers.get_all(FORWARDED_FOR) {
        all.extend_from_slice(line.as_bytes());
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(address.to_canonical().to_string().as_bytes());
    let value = HeaderValue::from_bytes(&all);
    headers.insert(FORWARDED_FOR, value.expect("it is made of header values"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_appended_to_the_addresses_before_it() {
        for (lines, address, expected) in [
            (&[][..], "10.0.0.1", "10.0.0.1"),
            (&["192.0.2.1"][..], "::1", "192.0.2.1, ::1"),
            (&["a, b", "c"][..], "::ffff:10.0.0.1", "a, b, c, 10.0.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, HeaderValue::from_static(line));
            }
            append_forwarded_for(&mut headers, address.parse().expect("an address"));
            let found: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
            assert_eq!(found, [expected]);
        }
    }
}
