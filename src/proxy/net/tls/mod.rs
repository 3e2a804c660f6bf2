//! TLS: the acceptor, certificates from files, and certificates that kubefan creates.

pub(in crate::net) mod acceptor;
mod any_certificate;
mod public_key;
mod self_signed;
mod throwaway;

pub use acceptor::{Acceptor, TlsFiles};
pub use public_key::PublicKey;
pub use self_signed::{SelfSigned, SelfSignedFiles};
pub use throwaway::throwaway_client_certificate;

#[cfg(test)]
pub(crate) mod tests;
