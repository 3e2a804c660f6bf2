//! How long a connection may last.

use std::future::Future;
use std::pin::Pin;

use tokio::time::{sleep, timeout};

use super::pending_openings::Opening;
use crate::net::ConnectionFuture;
use crate::net::config::Lifetime;

/// Completes with `stop`, or when the time is over in which a connection takes requests. It is
/// boxed because each future that contains it holds its size several times.
pub(super) fn stop_within(
    lifetime: Option<Lifetime>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match lifetime {
        None => Box::pin(stop),
        // The connection is stopped, whatever ends the wait.
        Some(lifetime) => Box::pin(async move { drop(timeout(lifetime.serving, stop).await) }),
    }
}

/// Ends a connection with a lifetime when it has lasted too long, or is the oldest of too many.
pub(super) fn ended_within(
    lifetime: Option<Lifetime>,
    opening: Opening,
    served: ConnectionFuture,
) -> ConnectionFuture {
    let Some(lifetime) = lifetime else {
        return served;
    };
    Box::pin(async move {
        tokio::select! {
            served = served => served,
            () = opening => Err("too many connections are open".into()),
            () = sleep(lifetime.total) => Err("the connection lasted too long".into()),
        }
    })
}
