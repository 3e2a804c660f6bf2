//! Parses and checks the addresses to listen on.

use std::net::SocketAddr;

use super::Problem;
use super::origin::Origin;

/// Parses `IP:PORT` or `localhost:PORT`.
///
/// # Errors
///
/// If the text has another form; the message shows an example.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.replacen("localhost:", "127.0.0.1:", 1);
    let message = || format!("{text:?} is not an ADDRESS:PORT such as 127.0.0.1:8001");
    numeric.parse().map_err(|_| message())
}

/// Parses an address and requires it to be loopback.
///
/// # Errors
///
/// If the address cannot be parsed or is not loopback; the message then ends with `reason`.
pub fn parse_loopback(text: &str, reason: &str) -> Result<SocketAddr, String> {
    let address = parse(text)?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(format!("{address} is not loopback: {reason}"))
    }
}

/// Returns a problem with the value of the command-line flag `flag`, such as `--listen`.
pub fn flag_problem(flag: &str, message: String) -> Problem {
    Problem::new(Origin::Flag(flag.to_owned()), "", &message)
}
