//! TLS: the acceptor, certificates from files, and certificates that kubefan creates.

pub(in crate::net) mod acceptor;
mod any_certificate;
pub(in crate::net) mod files;
mod made;
mod public_key;
mod self_signed;
mod throwaway;
mod tls_socket;
mod tls_stream;

pub use acceptor::Acceptor;
pub use files::TlsFiles;
pub use public_key::PublicKey;
pub use self_signed::{SelfSigned, SelfSignedFiles};
pub use throwaway::throwaway_client_certificate;

#[cfg(test)]
pub(crate) mod tests;
