//! The question: a request, and perhaps the user that sends it.

use http::header::{AUTHORIZATION, HOST};
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use kubefan_core::api::{Query, Status};
use kubefan_core::body;
use kubefan_core::body::Body;

use crate::identity::{ImpersonatedUser, is_secret_header};

/// The most headers of the request that is asked about.
const MAX_HEADERS: usize = 100;
/// The host of a request without a `Host` header: one that kubefan accepts on any listener.
const OWN_HOST: HeaderValue = HeaderValue::from_static("localhost");

/// The question in the query of a request to the admin listener.
#[derive(Debug)]
pub(super) struct Question {
    /// The request that is asked about, without credentials.
    pub(super) request: Request<Body>,
    /// True if the request has credentials. They are not read.
    pub(super) has_credentials: bool,
    /// The user that sends the request, if it is not the one that asks.
    pub(super) user: Option<ImpersonatedUser>,
}

impl Question {
    /// Reads the parameters `method` (default `GET`), `path` (with the query), `header` (`NAME: VALUE`,
    /// repeated), `as`, `asGroup` (repeated), `asUid` and `asExtra` (`KEY=VALUE`, repeated).
    ///
    /// # Errors
    /// A 400 that names the parameter.
    pub(super) fn parse(query: &str) -> Result<Self, Status> {
        let query = Query::parse(query);
        let method = query.first("method").unwrap_or("GET").to_uppercase();
        let method = Method::from_bytes(method.as_bytes());
        let method = method.map_err(|_| invalid("method", "it is not an HTTP method"))?;
        let path = query.first("path").unwrap_or_default();
        if !path.starts_with('/') {
            return Err(invalid("path", "a path such as /api/v1/pods is needed"));
        }
        let uri: Result<Uri, _> = path.parse();
        let uri = uri.map_err(|_| invalid("path", "it is not the path of a URL"))?;
        let mut request = Request::new(body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let mut has_credentials = false;
        for (number, line) in query.all("header").enumerate() {
            if number >= MAX_HEADERS {
                return Err(invalid("header", "there are more than 100"));
            }
            let (name, value) = header(line)?;
            if name == AUTHORIZATION {
                has_credentials = true;
            } else if !is_secret_header(name.as_str()) {
                request.headers_mut().append(name, value);
            }
        }
        request.headers_mut().entry(HOST).or_insert(OWN_HOST);
        Ok(Self {
            request,
            has_credentials,
            user: user(&query)?,
        })
    }
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue), Status> {
    let malformed = || invalid("header", "it is not NAME: VALUE");
    let (name, value) = line.split_once(':').ok_or_else(malformed)?;
    let name = HeaderName::try_from(name.trim()).map_err(|_| malformed())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| malformed())?;
    Ok((name, value))
}

fn user(query: &Query) -> Result<Option<ImpersonatedUser>, Status> {
    let mut user = ImpersonatedUser {
        name: query.text("as"),
        uid: query.text("asUid"),
        groups: query.all("asGroup").map(str::to_owned).collect(),
        ..ImpersonatedUser::default()
    };
    for extra in query.all("asExtra") {
        let malformed = || invalid("asExtra", "it is not KEY=VALUE");
        let (key, value) = extra.split_once('=').ok_or_else(malformed)?;
        let values = user.extra.entry(key.to_lowercase()).or_default();
        values.push(value.to_owned());
    }
    let is_asked = user != ImpersonatedUser::default();
    if is_asked && user.name.is_empty() {
        return Err(invalid("as", "groups, a UID and attributes need a user"));
    }
    Ok(is_asked.then_some(user))
}

fn invalid(parameter: &str, problem: &str) -> Status {
    Status::bad_request(format!("parameter {parameter}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_a_request_and_perhaps_a_user() {
        let query = "method=post&path=%2Fapi%2Fv1%2Fpods%3Flimit%3D1%26watch%3D1\
                     &header=Accept%3A+application/json%3Bas%3DTable&header=X-A%3A+1&header=x-a%3A2\
                     &as=jane&asGroup=dev&asGroup=ops&asUid=7&asExtra=Scopes%3Da%3Db";
        let question = Question::parse(query).expect("a question");
        let request = &question.request;
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.uri(), "/api/v1/pods?limit=1&watch=1");
        let headers = request.headers();
        assert_eq!(headers["accept"], "application/json;as=Table");
        assert_eq!(headers.get_all("x-a").iter().count(), 2);
        assert_eq!(headers["host"], "localhost");
        let user = question.user.expect("a user");
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["dev", "ops"]);
        assert_eq!(user.extra["scopes"], ["a=b"]);
        let plain = Question::parse("path=/version").expect("a question");
        assert_eq!(plain.request.method(), Method::GET);
        assert!(plain.user.is_none() && !plain.has_credentials);
    }

    #[test]
    fn secrets_are_not_kept() {
        let query = "path=/&header=authorization:+Bearer+x&header=Cookie:+a&header=x-remote-user:+a\
                     &header=Proxy-Authorization:+x&header=accept:+*\
                     &header=Sec-WebSocket-Protocol:+x";
        let question = Question::parse(query).expect("a question");
        let names: Vec<_> = question.request.headers().keys().collect();
        assert_eq!(names, ["accept", "host"]);
        assert!(question.has_credentials);
    }

    #[test]
    fn a_malformed_question_names_the_parameter() {
        for (query, expected) in [
            ("", "parameter path"),
            ("path=api", "parameter path"),
            ("path=/a%20b", "parameter path"),
            ("path=/&method=a%20b", "parameter method"),
            ("path=/&header=accept", "parameter header"),
            ("path=/&header=a%20b:c", "parameter header"),
            ("path=/&header=a:b%0Ac", "parameter header"),
            ("path=/&asGroup=dev", "parameter as"),
            ("path=/&as=jane&asExtra=a", "parameter asExtra"),
        ] {
            let status = Question::parse(query).expect_err(query);
            assert_eq!(status.code, 400, "{query}");
            assert!(status.message.contains(expected), "{}", status.message);
        }
    }
}
