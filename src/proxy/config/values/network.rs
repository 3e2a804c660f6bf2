//! Networks as text: `10.0.0.0/8`, or one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::text::written_as_text;

/// A network of IPv4 or IPv6, written `10.0.0.0/8` or, for one address, `10.0.0.1`. A network of
/// IPv4-mapped IPv6 addresses, such as `::ffff:10.0.0.0/104`, is equal to the IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub(in crate::config) IpNet);

// === impl Network ===

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse().ok().or_else(address);
        let network: IpNet =
            network.ok_or_else(|| format!("{text:?} is not a network such as 10.0.0.0/8"))?;
        Ok(Self(canonical(network.trunc())))
    }
}

/// Returns the IPv4 network if `network` is one that is written with IPv4-mapped IPv6 addresses;
/// otherwise `network`.
fn canonical(network: IpNet) -> IpNet {
    /// The number of bits before the IPv4 address in an IPv4-mapped IPv6 address.
    const MAPPED: u8 = 96;
    let address = network.addr().to_canonical();
    match network.prefix_len().checked_sub(MAPPED) {
        Some(length) if address != network.addr() => {
            IpNet::new(address, length).expect("a prefix of at most 128 bits leaves at most 32")
        }
        _ => network,
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_as_text!(Network, "a string", Network::from_str, None, {
    "type": "string",
    "pattern": "^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_with_and_without_a_length() {
        for (text, expected) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3", Some("10.1.2.3/32")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("::1", Some("::1/128")),
            ("::ffff:10.0.0.0/104", Some("10.0.0.0/8")),
            ("::ffff:10.1.2.3", Some("10.1.2.3/32")),
            ("::ffff:0:0/96", Some("0.0.0.0/0")),
            ("::ffff:0:0/95", Some("::fffe:0:0/95")),
            ("::/0", Some("::/0")),
            ("10.0.0.0/33", None),
            ("10.0.0.0-10.0.0.9", None),
            ("balancer.example", None),
            ("", None),
        ] {
            let network = text.parse::<Network>().ok();
            let printed = network.map(|network| network.to_string());
            assert_eq!(printed.as_deref(), expected, "{text}");
        }
    }
}
