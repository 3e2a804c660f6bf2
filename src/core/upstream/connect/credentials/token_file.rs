//! Bearer tokens from a file that another program renews, such as a pod's service account token.
//!
//! The kube crate's layer for this does not trim the file's content, so it rejects a file that ends
//! with a newline, as editors and `echo` write it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::body::Body;

/// A token is used for this time before the file is read again.
const REREAD_INTERVAL: Duration = Duration::from_secs(10);

/// Adds the token in a file to requests. Clones share the token that was read last.
#[derive(Clone)]
pub(in crate::upstream::connect) struct TokenFile {
    path: PathBuf,
    cached: Arc<Mutex<(HeaderValue, Instant)>>,
}

impl TokenFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// If the file can't be read, or does not contain a token.
    pub(in crate::upstream::connect) fn open(path: PathBuf) -> io::Result<Self> {
        let header = read(&path)?;
        Ok(Self {
            path,
            cached: Arc::new(Mutex::new((header, Instant::now()))),
        })
    }

    /// Returns `request` with the current token.
    pub(in crate::upstream::connect) fn authorize(
        &self,
        mut request: Request<Body>,
    ) -> Request<Body> {
        request.headers_mut().insert(AUTHORIZATION, self.header());
        request
    }

    /// Returns the `Authorization` header with the current token. If the file can no longer be read
    /// or is empty, the last token stays in use: some programs get a token only when they start.
    fn header(&self) -> HeaderValue {
        let mut last = self.cached.lock();
        let (header, at) = &mut *last;
        if at.elapsed() >= REREAD_INTERVAL {
            *at = Instant::now();
            match read(&self.path) {
                Ok(renewed) => *header = renewed,
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "cannot renew the token, using the last one");
                }
            }
        }
        header.clone()
    }
}

fn read(path: &Path) -> io::Result<HeaderValue> {
    let text = std::fs::read_to_string(path)?;
    let invalid = |problem| io::Error::new(io::ErrorKind::InvalidData, problem);
    match text.trim() {
        "" => Err(invalid("the file is empty; it must contain a token")),
        token => {
            let mut header = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| invalid("the file contains no token: it has control characters"))?;
            header.set_sensitive(true);
            Ok(header)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rereads_the_file_and_keeps_the_last_token_without_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let open_error = |path: &Path| TokenFile::open(path.to_owned()).err().unwrap().to_string();
        assert!(open_error(&path).contains("No such file"));
        std::fs::write(&path, " \n").unwrap();
        assert!(open_error(&path).contains("is empty"));
        std::fs::write(&path, "one\n").unwrap();
        let token = TokenFile::open(path.clone()).unwrap();
        assert_eq!(token.header(), "Bearer one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(token.header(), "Bearer one");
        tokio::time::advance(REREAD_INTERVAL).await;
        assert_eq!(token.header(), "Bearer two");
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(REREAD_INTERVAL).await;
        assert_eq!(token.header(), "Bearer two");
        assert!(token.header().is_sensitive());
    }
}
