//! Addresses to listen on, as they are given.

use std::net::SocketAddr;

use super::Problem;
use super::problem::Location;

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
    let message = || format!("{text:?} is no ADDRESS:PORT; 127.0.0.1:8001 would be one");
    numeric.parse().map_err(|_| message())
}

/// Reads an address that must be loopback, for `reason`.
///
/// # Errors
///
/// What is wrong, and what would be right.
pub fn parse_loopback(text: &str, reason: &str) -> Result<SocketAddr, String> {
    let address = parse(text)?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!("{address} is not loopback: {reason}")),
    }
}

/// The problem of a flag.
pub fn flag_problem(flag: &str, message: String) -> Problem {
    Problem {
        location: Location::Named(flag.to_owned()),
        message,
    }
}
