//! Bearer tokens from a file that somebody else renews, such as a pod's service account token.
//!
//! kube's own layer takes the file's bytes as they are, so that a file with a newline at its end,
//! which every editor and `echo` makes, would be no valid token.

use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use http::HeaderValue;
use http::Request;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::Layer;
use tower::Service;

/// How long what was read is used.
const REREAD_INTERVAL: Duration = Duration::from_secs(10);

/// Adds the token to requests; clones share what was read.
#[derive(Clone)]
pub(super) struct TokenFile {
    path: PathBuf,
    cached: Arc<Mutex<(HeaderValue, Instant)>>,
}

/// A service behind a [`TokenFile`].
#[derive(Clone)]
pub(super) struct TokenService<S> {
    inner: S,
    token: TokenFile,
}

impl TokenFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// When it can't be read, or holds no token.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let header = read(&path)?;
        Ok(Self {
            path,
            cached: Arc::new(Mutex::new((header, Instant::now()))),
        })
    }

    /// The token of this moment. When the file went away or is empty, the last one is used on: some
    /// programs are given a token at their start only.
    fn header(&self) -> HeaderValue {
        let mut last = self.cached.lock();
        let (header, at) = &mut *last;
        if at.elapsed() >= REREAD_INTERVAL {
            *at = Instant::now();
            match read(&self.path) {
                Ok(renewed) => *header = renewed,
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "token can't be renewed");
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
        "" => Err(invalid("the file is empty, a token should be there")),
        token => {
            let mut header = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| invalid("the file holds no token: it has control characters"))?;
            header.set_sensitive(true);
            Ok(header)
        }
    }
}

impl<S> Layer<S> for TokenFile {
    type Service = TokenService<S>;

    fn layer(&self, inner: S) -> TokenService<S> {
        TokenService {
            inner,
            token: self.clone(),
        }
    }
}

impl<S, B> Service<Request<B>> for TokenService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        let header = self.token.header();
        request.headers_mut().insert(AUTHORIZATION, header);
        self.inner.call(request)
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
