//! Addresses to listen on, as they are given.

use std::net::SocketAddr;

use super::Fault;
use super::fault::Place;

/// Why kubefan itself listens on loopback only.
pub const NOT_AUTHENTICATED: &str = "kubefan answers with the rights of its kubeconfig and \
     does not authenticate callers yet, so it listens on loopback only; use 127.0.0.1 or [::1]";

/// Reads an address, `localhost` included.
///
/// # Errors
///
/// What is wrong, and what would be right.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.replacen("localhost:", "127.0.0.1:", 1);
    let problem = || format!("{text:?} is no ADDRESS:PORT; 127.0.0.1:8001 would be one");
    numeric.parse().map_err(|_| problem())
}

/// Reads an address that must be loopback, for `reason`.
///
/// # Errors
///
/// What is wrong, and what would be right.
pub fn loopback(text: &str, reason: &str) -> Result<SocketAddr, String> {
    let address = parse(text)?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!("{address} is not loopback: {reason}")),
    }
}

/// The fault of a flag.
pub fn fault(flag: &str, problem: String) -> Fault {
    Fault {
        place: Place::Named(flag.to_owned()),
        problem,
    }
}
