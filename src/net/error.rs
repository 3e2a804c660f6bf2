//! What can be wrong with certificates and keys on disk.

use std::io;
use std::path::PathBuf;

use rustls::pki_types::pem;

/// Why TLS can't be served. Each message is one line and names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file can't be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file, or the directory, can't be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file has no usable PEM section of the kind that is needed.
    #[error("no {what} in {}", .path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// `PEM certificate` or `PEM private key`.
        what: &'static str,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// The certificate authority's key can't be used.
    #[error("no usable private key in {}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// The key can't be used, or is of another certificate.
    #[error("{} can't be used with {}", .key.display(), .certificate.display())]
    Pair {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// A file that kubefan would have to replace, and did not make.
    #[error("{} was not made by kubefan: give it another directory", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A certificate for this name or address can't be made.
    #[error("{name:?} is neither a DNS name nor an IP address")]
    Name {
        /// What was asked for.
        name: String,
    },
    /// Making a key or certificate failed.
    #[error("cannot make a certificate")]
    Issue(#[from] rcgen::Error),
}
