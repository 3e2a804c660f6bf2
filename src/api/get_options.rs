//! What a GET of one object asks for.

use super::Query;
use super::ResourceVersion;
use super::Status;
use super::go_text::parse_uint64;
use super::label_syntax::invalid;

/// How fresh the state must be that a read is answered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// At least as new as the moment of the request (resource version unset).
    MostRecent,
    /// Any state (resource version `0`).
    Any,
    /// At least as new as this.
    NotOlderThan(ResourceVersion),
}

impl Consistency {
    /// Reads a `resourceVersion` parameter.
    ///
    /// # Errors
    /// What is wrong, in the API server's words; LIST, GET and WATCH wrap it differently.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" => Ok(Self::MostRecent),
            _ => match parse_uint64(text) {
                Ok(0) => Ok(Self::Any),
                Ok(number) => Ok(Self::NotOlderThan(ResourceVersion(number))),
                Err(fault) => Err(invalid("resourceVersion", text, &fault)),
            },
        }
    }
}

/// The parameters of a GET, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetOptions {
    /// How fresh the object must be.
    pub consistency: Consistency,
}

impl GetOptions {
    /// Reads the query string of a GET; parameters of LIST and WATCH are ignored.
    ///
    /// # Errors
    /// 400 for the long removed `export`; 500 for a resource version that is no number.
    pub fn parse(query: &str) -> Result<Self, Status> {
        let query = Query::parse(query);
        if query.flag("export") == Some(true) {
            return Err(Status::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            ));
        }
        let consistency =
            Consistency::parse(&query.text("resourceVersion")).map_err(Status::unclassified)?;
        Ok(Self { consistency })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_resource_version() {
        for (query, consistency) in [
            ("", Consistency::MostRecent),
            (
                "resourceVersion=&watch=1&limit=abc",
                Consistency::MostRecent,
            ),
            ("resourceVersion=0&export=false", Consistency::Any),
            (
                "resourceVersion=7",
                Consistency::NotOlderThan(ResourceVersion(7)),
            ),
        ] {
            assert_eq!(
                GetOptions::parse(query),
                Ok(GetOptions { consistency }),
                "{query}"
            );
        }
    }

    #[test]
    fn refuses_as_the_api_server_does() {
        let body = |query| GetOptions::parse(query).map_err(|status| status.to_json());
        assert_eq!(
            body("resourceVersion=abc"),
            Err(concat!(
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#,
                r#""resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": "#,
                r#"invalid syntax","code":500}"#,
                "\n"
            )
            .to_owned())
        );
        let export = GetOptions::parse("export").map_err(|status| (status.code, status.message));
        let message = "the export parameter, deprecated since v1.14, is no longer supported";
        assert_eq!(export, Err((400, message.to_owned())));
    }
}
