//! Whether the API server says that it is ready.

use super::client::get;
use super::{Client, Error, Identity};

/// The path of the API server's readiness check. Every user may read it by default.
const READINESS: &str = "/readyz";

impl Client {
    /// Asks the API server whether it is ready. One that has just started may not have all
    /// resources in discovery yet. A server that does not say, or does not say it to kubefan,
    /// counts as ready.
    ///
    /// # Errors
    /// [`Error::Answer`] with a 5xx or 429 if it is not ready, and the errors of
    /// [`Client::request`].
    pub async fn check_ready(&self) -> Result<(), Error> {
        let request = get(READINESS, "*/*")?;
        match self.request_success(Identity::Kubefan, request).await {
            Err(Error::Answer { status, .. })
                if (400..500).contains(&status.code) && status.code != 429 =>
            {
                Ok(())
            }
            answered => answered.map(drop),
        }
    }
}
