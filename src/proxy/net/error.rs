//! Errors of certificates and keys on disk.

use std::io;
use std::path::PathBuf;

use rustls::pki_types::pem;

/// Why TLS can't be served. Each message is one line, and names the file if there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file can't be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Path of the file that can't be read.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The file, or the directory, can't be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// Path of the file or directory that can't be written.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The file has no usable PEM section of the required kind.
    #[error("no {what} in {}", .path.display())]
    Pem {
        /// Path of the PEM file.
        path: PathBuf,
        /// The missing section: `PEM certificate` or `PEM private key`.
        what: &'static str,
        /// Why the PEM parser found no usable section.
        #[source]
        source: pem::Error,
    },
    /// The certificate authority's key can't be used.
    #[error("no usable private key in {}", .path.display())]
    Key {
        /// Path of the authority's key.
        path: PathBuf,
        /// Why the key can't be used.
        #[source]
        source: rcgen::Error,
    },
    /// The key can't be used, or belongs to another certificate.
    #[error("{} can't be used with {}", .key.display(), .certificate.display())]
    Pair {
        /// Path of the certificate.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
        /// Why TLS rejects the pair.
        #[source]
        source: rustls::Error,
    },
    /// A file that kubefan did not create has the path of a file that kubefan would have to
    /// replace.
    #[error("{} was not made by kubefan: choose another directory", .path.display())]
    Foreign {
        /// Path of the file that kubefan did not create.
        path: PathBuf,
    },
    /// A certificate can't be created for this name, because it is neither a DNS name nor an IP
    /// address.
    #[error("{name:?} is neither a DNS name nor an IP address")]
    Name {
        /// The name, as configured.
        name: String,
    },
    /// Creating a key or certificate failed.
    #[error("cannot create a certificate")]
    Issue(#[from] rcgen::Error),
}
