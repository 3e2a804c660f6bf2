//! A dashboard, which lists the most recent state again and again.

use std::time::Duration;

use kubefan_core::upstream::Error;

use super::connection::Connection;

/// The pause between two lists of a dashboard.
const PAUSE: Duration = Duration::from_secs(15);
/// What `kubectl get` accepts.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// Lists `path` every few seconds. Never returns.
pub(super) async fn poll(connection: &Connection, path: &str) {
    loop {
        if let Err(error) = list(connection, path).await {
            tracing::debug!(%error, path, "the list of an agent failed");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn list(connection: &Connection, path: &str) -> Result<(), Error> {
    let mut body = connection.get(path, TABLE).await?.into_body();
    while connection.chunk(&mut body).await?.is_some() {}
    Ok(())
}
