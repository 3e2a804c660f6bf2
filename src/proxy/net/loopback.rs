//! Names and addresses of this machine.

use std::net::IpAddr;

/// Returns true if `host`, as in a URL or in the header `Host`, is `localhost` or a loopback
/// address. An IPv6 address may be in brackets.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_address = || address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    host.eq_ignore_ascii_case("localhost") || is_address()
}
