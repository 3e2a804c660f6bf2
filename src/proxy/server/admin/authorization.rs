//! The right to read metrics and details. The API server decides, as for its own metrics.

use http::Request;
use kubefan_core::api::Status;

use crate::identity::{AccessControl, Attributes, Verdict};
use crate::limit::Limit;
use crate::net::ClientHandle;

/// The path that a caller must be allowed to get. `/readyz?verbose` needs the right to this path
/// too: it shows what the metrics show, and every user may get `/readyz` of the API server.
const PATH: &str = "/metrics";

/// Checks that the caller of `request` may get [`PATH`].
///
/// # Errors
/// The Status of the refusal.
pub(super) async fn authorize<B: Send>(
    access: &AccessControl,
    request: &mut Request<B>,
) -> Result<(), Status> {
    let client = request.extensions().get::<ClientHandle>().cloned();
    let client = client.ok_or_else(unauthorized)?;
    let caller = access.caller(request.headers_mut(), &client.connection, &client.peer);
    let caller = caller.await?;
    let caller = caller.known().ok_or_else(unauthorized)?;
    match access.may_read(caller, &Attributes::of_path(PATH)).await {
        Verdict::Allowed | Verdict::Stale => Ok(()),
        Verdict::NotAllowed => Err(forbidden(&caller.user().name)),
        Verdict::Busy => Err(Limit::Reviews.status()),
    }
}

fn unauthorized() -> Status {
    let message = "Unauthorized: this needs the token of a user that may get the path /metrics, and the \
                   API server must know the token";
    Status::failure(401, "Unauthorized", message)
}

fn forbidden(user: &str) -> Status {
    let message = format!(
        "forbidden: User {user:?} cannot get path {PATH:?}, or the API server has not said so"
    );
    Status::failure(403, "Forbidden", message)
}
