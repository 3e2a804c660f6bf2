//! The PROXY protocol, versions 1 and 2. A load balancer that forwards bytes begins each connection
//! with a header that contains the client's address.
//!
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>

use std::io;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use proxy_header::{ParseConfig, Protocol, ProxyHeader};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The first bytes of a header of version 1.
const SIGNATURE_V1: &[u8] = b"PROXY ";
/// The first bytes of a header of version 2.
const SIGNATURE_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header of version 1, according to the specification.
const MAX_V1: usize = 107;
/// Length of the first part of a header of version 2. Its last bytes are the length of the rest.
const START_V2: usize = 16;
/// The longest header of version 2 that is accepted. The addresses take at most 216 bytes. Further
/// information that some load balancers add, such as a name or a client certificate, takes a few
/// kilobytes.
const MAX_V2: usize = 8 << 10;

/// Networks of load balancers that begin each connection with a PROXY header. Connections from
/// other addresses have no header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyNetworks(pub Vec<IpNet>);

/// Why a connection of a load balancer was closed because of its header.
#[derive(Debug, thiserror::Error)]
enum HeaderError {
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    #[error("the PROXY header is longer than {MAX_V1} bytes (version 1) or {MAX_V2} (version 2)")]
    TooLong,
    #[error("the PROXY header is malformed")]
    Malformed,
}

impl ProxyNetworks {
    /// Returns true if a connection from `address` must begin with a header. The address of an IPv4
    /// peer may be an IPv4-mapped IPv6 address.
    pub(in crate::net) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Reads the header at the start of `stream`, and no byte after it. Returns the client's address.
/// Returns `None` if the load balancer has opened the connection for itself, as for health checks,
/// or does not have the address.
///
/// # Errors
/// If the header is missing, malformed or too long, or the connection fails.
pub(in crate::net) async fn read_header(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::new();
    loop {
        let mut peeked = [0; 512];
        // The peeked bytes may belong to TLS or HTTP, which read from the socket themselves.
        let count = stream.peek(&mut peeked).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = header.len();
        header.extend_from_slice(&peeked[..count]);
        let length = length(&header).map_err(invalid)?;
        header.truncate(length.unwrap_or(header.len()));
        stream.read_exact(&mut header[before..]).await?;
        if Some(header.len()) == length {
            return client(&header).map_err(invalid);
        }
    }
}

/// Returns the length of the header at the start of `bytes`; `None` if there are too few bytes to
/// determine it.
fn length(bytes: &[u8]) -> Result<Option<usize>, HeaderError> {
    let begins_with = |signature: &[u8]| {
        let shorter = signature.len().min(bytes.len());
        bytes[..shorter] == signature[..shorter]
    };
    if begins_with(SIGNATURE_V2) {
        let Some(start) = bytes.first_chunk::<START_V2>() else {
            return Ok(None);
        };
        let rest = u16::from_be_bytes([start[14], start[15]]);
        return match START_V2 + usize::from(rest) {
            length if length > MAX_V2 => Err(HeaderError::TooLong),
            length => Ok(Some(length)),
        };
    }
    if !begins_with(SIGNATURE_V1) {
        return Err(HeaderError::Missing);
    }
    let line = &bytes[..bytes.len().min(MAX_V1)];
    match line.windows(2).position(|end| end == b"\r\n") {
        Some(end) => Ok(Some(end + 2)),
        None if bytes.len() >= MAX_V1 => Err(HeaderError::TooLong),
        None => Ok(None),
    }
}

/// Returns the client's address in the complete `header`, if it has one.
fn client(header: &[u8]) -> Result<Option<SocketAddr>, HeaderError> {
    let parsed = ProxyHeader::parse(header, ParseConfig::default());
    let (parsed, length) = parsed.map_err(|_| HeaderError::Malformed)?;
    match parsed.proxied_address() {
        _ if length != header.len() => Err(HeaderError::Malformed),
        None => Ok(None),
        Some(proxied) if proxied.protocol == Protocol::Stream => Ok(Some(proxied.source)),
        Some(_) => Err(HeaderError::Malformed),
    }
}

fn invalid(error: HeaderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// Returns a header of version 2 with this command and family, and these addresses.
    fn v2(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE_V2.to_vec();
        header.extend([command, family]);
        header.extend((addresses.len() as u16).to_be_bytes());
        header.extend(addresses);
        header
    }

    fn ipv4_addresses() -> Vec<u8> {
        let mut addresses = vec![203, 0, 113, 7, 10, 0, 0, 1];
        addresses.extend(4_000_u16.to_be_bytes());
        addresses.extend(443_u16.to_be_bytes());
        addresses
    }

    fn ipv6_addresses() -> Vec<u8> {
        let address = |text: &str| -> [u8; 16] {
            let address: std::net::Ipv6Addr = text.parse().expect("an address");
            address.octets()
        };
        let mut addresses = [address("2001:db8::7"), address("2001:db8::1")].concat();
        addresses.extend(4_000_u16.to_be_bytes());
        addresses.extend(443_u16.to_be_bytes());
        addresses
    }

    /// Returns what is read from a socket, and the bytes after the header. The peer of the socket
    /// sends `bytes` in parts of this length, and closes the socket.
    async fn read(bytes: &[u8], part: usize) -> (io::Result<Option<SocketAddr>>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).await.expect("a connection");
        client.set_nodelay(true).expect("an option");
        let (mut server, _) = listener.accept().await.expect("a connection");
        let send = async {
            for part in bytes.chunks(part) {
                // The reader may have closed the connection.
                if client.write_all(part).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        let receive = async {
            let found = read_header(&mut server).await;
            let mut rest = Vec::new();
            // The client may be cut off.
            if found.is_ok() {
                server.read_to_end(&mut rest).await.expect("the rest");
            }
            drop(server);
            (found, rest)
        };
        tokio::join!(send, receive).1
    }

    #[tokio::test]
    async fn a_header_is_read_to_its_end_and_no_further() {
        let v4: Option<SocketAddr> = Some("203.0.113.7:4000".parse().expect("an address"));
        let v6 = Some("[2001:db8::7]:4000".parse().expect("an address"));
        let with_tlv = [ipv4_addresses(), vec![0x03, 0, 4, 1, 2, 3, 4]].concat();
        let rows = [
            (b"PROXY TCP4 203.0.113.7 10.0.0.1 4000 443\r\n".to_vec(), v4),
            (
                b"PROXY TCP6 2001:db8::7 2001:db8::1 4000 443\r\n".to_vec(),
                v6,
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN 1 2 3 4\r\n".to_vec(), None),
            (v2(0x21, 0x11, &ipv4_addresses()), v4),
            (v2(0x21, 0x21, &ipv6_addresses()), v6),
            (v2(0x21, 0x11, &with_tlv), v4),
            // A health check of the load balancer.
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, &ipv4_addresses()), None),
            // A client on a Unix socket of the load balancer.
            (v2(0x21, 0x31, &[b'x'; 216]), None),
            (v2(0x21, 0x00, &[]), None),
        ];
        for (header, expected) in rows {
            for part in [1, 5, 10_000] {
                let sent = [header.clone(), b"GET / HTTP/1.1\r\n".to_vec()].concat();
                let (found, rest) = read(&sent, part).await;
                let what = String::from_utf8_lossy(&header).into_owned();
                assert_eq!(found.expect(&what), expected, "{what}");
                assert_eq!(rest, b"GET / HTTP/1.1\r\n", "{what}");
            }
        }
    }

    #[tokio::test]
    async fn other_first_bytes_are_refused() {
        let long = vec![b'x'; MAX_V2];
        let long_line = [b"PROXY UNKNOWN ".to_vec(), long.clone()].concat();
        for (sent, expected) in [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "does not begin"),
            (b"\x16\x03\x01\x02\0\x01".to_vec(), "does not begin"),
            (b"PRI * HTTP/2.0\r\n\r\n".to_vec(), "does not begin"),
            (
                b"PROXY TCP4 203.0.113.7 10.0.0.1 4000\r\n".to_vec(),
                "malformed",
            ),
            (b"PROXY TCP4 2001:db8::7 ::1 1 2\r\n".to_vec(), "malformed"),
            (
                b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n".to_vec(),
                "malformed",
            ),
            (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n".to_vec(), "malformed"),
            (long_line, "longer"),
            (v2(0x21, 0x11, &long), "longer"),
            (v2(0x11, 0x11, &ipv4_addresses()), "malformed"),
            (v2(0x22, 0x11, &ipv4_addresses()), "malformed"),
            (v2(0x21, 0x51, &ipv4_addresses()), "malformed"),
            // Datagrams do not arrive on a connection.
            (v2(0x21, 0x12, &ipv4_addresses()), "malformed"),
            (v2(0x21, 0x11, &ipv4_addresses()[..11]), "malformed"),
            (v2(0x21, 0x21, &ipv4_addresses()), "malformed"),
            (b"PROXY TCP4 203.0.113.7".to_vec(), "unexpected end of file"),
            (
                v2(0x21, 0x11, &ipv4_addresses())[..20].to_vec(),
                "unexpected end of file",
            ),
            (Vec::new(), "unexpected end of file"),
        ] {
            for part in [1, 10_000] {
                let (found, _) = read(&sent, part).await;
                let what = String::from_utf8_lossy(&sent).into_owned();
                let error = found.expect_err(&what).to_string();
                assert!(error.contains(expected), "{what}: {error}");
            }
        }
    }

    #[test]
    fn networks_contain_addresses_of_both_families() {
        let networks = ["10.0.0.0/8", "2001:db8::/32"].map(|text| text.parse().expect("a network"));
        let networks = ProxyNetworks(networks.into());
        for (address, expected) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("11.1.2.3", false),
            ("2001:db8::1", true),
            ("::1", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(networks.contains(address), expected, "{address}");
        }
        assert!(!ProxyNetworks::default().contains("10.1.2.3".parse().expect("an address")));
    }
}
