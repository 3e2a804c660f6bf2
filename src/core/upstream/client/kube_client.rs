//! Conversions between this client and that of the crate `kube`, so that a program has only one.

use http::header::UPGRADE;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use kube::client::AuthError;
use tower::service_fn;

use super::{Client, Identity, Origin};
use crate::body;
use crate::body::{Body, BoxError};
use crate::upstream::connect::stack::{MaybeSent, Stack};
use crate::upstream::connect::transport::Stacks;
use crate::upstream::connect::transport::replay::BrokenBody;

/// What logs show in place of the API server's URL, which a `kube::Client` does not expose.
const SERVER_TEXT: &str = "kube::Client";

impl From<kube::Client> for Client {
    /// Creates a client that sends everything through `client`, with its
    /// credentials and its layers.
    ///
    /// Its calls have the default of
    /// [`ClientConfig::answer_timeout`](crate::upstream::ClientConfig::answer_timeout). The body of
    /// a request is sent when it is complete. [`Client::reload`] does nothing, because a
    /// `kube::Client` renews its credentials itself. The `read_timeout` of the `kube::Client` ends
    /// a silent watch; there are no pings, so [`Client::is_responding`] is always true.
    /// [`Client::open_connection`] and [`Identity::Caller`] are errors.
    fn from(client: kube::Client) -> Self {
        let sender = client.clone();
        let stacks = Stacks {
            kubefan: Stack::new(service_fn(move |request| send(sender.clone(), request))),
            own: None,
        };
        let default_namespace = client.default_namespace().to_owned();
        Self::from_parts(
            Origin::Kube(client),
            Uri::from_static("/"),
            SERVER_TEXT,
            &default_namespace,
            stacks,
        )
    }
}

impl Client {
    /// Returns this client as one of the crate `kube`, for example for the writes of a `kube::Api`.
    /// It shares the connections, and renews the credentials like this client. It has no time limit
    /// for answers.
    ///
    /// A client that was made from a `kube::Client` returns that one.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn to_kube(&self) -> kube::Client {
        if let Origin::Kube(client) = &self.inner.origin {
            return client.clone();
        }
        let client = self.clone();
        let service = service_fn(move |request: Request<kube::client::Body>| {
            let request = request.map(body::boxed);
            let is_upgrade = request.headers().contains_key(UPGRADE);
            let client = client.clone();
            async move {
                if is_upgrade {
                    client.request_http1(Identity::Kubefan, request).await
                } else {
                    client.request(Identity::Kubefan, request).await
                }
            }
        });
        kube::Client::new(service, self.default_namespace())
    }
}

/// Sends `request` through `client`.
async fn send(client: kube::Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    let (mut parts, body) = request.into_parts();
    // The connections of this crate that the request might have used.
    parts.extensions.clear();
    let collected = body.collect().await;
    let body = collected.map_err(|error| Box::new(BrokenBody(error)))?;
    let request = Request::from_parts(parts, body.to_bytes().into());
    match client.send(request).await {
        Ok(response) => Ok(response.map(body::boxed)),
        Err(error) => Err(classified(error)),
    }
}

/// Returns the error of a [`Stack`], which says whether the API server may have
/// received the request.
fn classified(error: kube::Error) -> BoxError {
    match error {
        kube::Error::Auth(error) => Box::new(error),
        kube::Error::Service(error) if is_unsent(&error) => error,
        kube::Error::Service(error) => Box::new(MaybeSent(error)),
        error => Box::new(MaybeSent(Box::new(error))),
    }
}

/// Returns true if no connection could be opened, or there are no credentials.
fn is_unsent(error: &BoxError) -> bool {
    let unconnected = error.downcast_ref::<hyper_util::client::legacy::Error>();
    unconnected.is_some_and(hyper_util::client::legacy::Error::is_connect)
        || error.is::<AuthError>()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::body::full;
    use crate::upstream::tests::support::TestServer;
    use crate::upstream::{Error, HttpVersion};

    fn kube_client(url: &str) -> kube::Client {
        let config = kube::Config::new(url.parse().expect("a URL"));
        kube::Client::try_from(config).expect("a client")
    }

    /// Answers with the method, path and body of the request.
    async fn echo(request: Request<hyper::body::Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let body = String::from_utf8_lossy(&body);
        let seen = json!([parts.method.as_str(), parts.uri.to_string(), body]);
        Response::new(full(seen.to_string()))
    }

    #[tokio::test]
    async fn requests_go_through_either_client_to_the_other() {
        let server = TestServer::plain(echo).await;
        let ours = server.client().await;
        let put = || Request::put("/api/v1/nodes/n?dryRun=All");
        let seen = json!(["PUT", "/api/v1/nodes/n?dryRun=All", "{}"]);
        let request = put().body(b"{}".to_vec()).expect("a request");
        let kube = ours.to_kube();
        assert_eq!(
            kube.request::<Value>(request).await.expect("an answer"),
            seen
        );
        assert_eq!(kube.default_namespace(), ours.default_namespace());

        let back = Client::from(kube);
        let request = put().body(full("{}")).expect("a request");
        let answer = back.request_json::<Value>(Identity::Kubefan, request).await;
        assert_eq!(answer.expect("an answer"), seen);
        let same = back.to_kube();
        let request = put().body(b"{}".to_vec()).expect("a request");
        assert_eq!(
            same.request::<Value>(request).await.expect("an answer"),
            seen
        );
        back.reload().await.expect("nothing to do");
        assert!(back.is_responding());
    }

    #[tokio::test]
    async fn a_refused_connection_means_that_nothing_was_sent() {
        let url = "http://127.0.0.1:1";
        let error = Client::from(kube_client(url))
            .get_json::<Value>("/version")
            .await;
        let error = error.expect_err("no server listens");
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        assert!(error.is_connection_refused());
    }

    #[tokio::test]
    async fn only_one_identity_has_connections() {
        let client = Client::from(kube_client("http://127.0.0.1:1"));
        let request = Request::new(body::empty());
        let error = client.request(Identity::Caller, request).await;
        assert!(matches!(error, Err(Error::Request(_))), "{error:?}");
        let opened = client.open_connection(HttpVersion::Http1).await;
        assert!(matches!(opened, Err(Error::Request(_))));
    }
}
