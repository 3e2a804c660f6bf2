//! The handling of fields that a kind does not have, as the parameter
//! `fieldValidation` of a write asks.

use kubefan_core::api::{Query, Status};

use crate::sim::kinds::Kind;

/// The answer to a write with unknown fields. The fields are removed in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    /// A `Warning` header for each unknown field.
    Warn,
    /// An error.
    Strict,
}

impl FieldValidation {
    /// Returns the value in the query of a write with `verb`; `Warn` if there
    /// is none, as in the API server.
    ///
    /// # Errors
    ///
    /// 422 for an unknown value.
    pub(super) fn of(query: &Query, verb: &str) -> Result<Self, Status> {
        match query.first("fieldValidation") {
            None | Some("" | "Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => {
                let options = match verb {
                    "create" => "CreateOptions",
                    "update" => "UpdateOptions",
                    _ => "PatchOptions",
                };
                let message = format!(
                    "{options}.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \
                     \"{other}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
                );
                Err(Status::failure(422, "Invalid", message))
            }
        }
    }

    /// Returns the texts of the `Warning` headers for the fields at `paths`. `refuse` makes the
    /// error from the message of a strict decoder.
    ///
    /// # Errors
    ///
    /// If there are unknown fields, and the request allows none.
    pub(super) fn judge(
        self,
        paths: &[String],
        refuse: impl FnOnce(&str) -> Status,
    ) -> Result<Vec<String>, Status> {
        let texts: Vec<_> = paths
            .iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect();
        match self {
            Self::Strict if !texts.is_empty() => Err(refuse(&format!(
                "strict decoding error: {}",
                texts.join(", ")
            ))),
            Self::Warn => Ok(texts),
            Self::Strict | Self::Ignore => Ok(Vec::new()),
        }
    }
}

/// Creates the 400 for a body that is not an object of `kind`.
pub(super) fn undecodable(kind: &Kind, error: &str) -> Status {
    let (name, version) = (&kind.resource.kind, &kind.resource.gvr.version);
    let message = format!("{name} in version \"{version}\" cannot be handled as a {name}: {error}");
    Status::bad_request(message)
}

/// Creates the 422 for a patch if its result is not an object of the kind.
pub(super) fn unpatchable(patched: &str, error: &str) -> Status {
    let quoted = serde_json::Value::from(patched);
    let message = format!(" \"\" is invalid: patch: Invalid value: {quoted}: {error}");
    Status::failure(422, "Invalid", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_refused_reported_or_ignored() {
        let paths = ["spec.a".to_owned(), "b".to_owned()];
        let texts = ["unknown field \"spec.a\"", "unknown field \"b\""];
        let judge = |query: &str, paths: &[String]| {
            let validation = FieldValidation::of(&Query::parse(query), "create")?;
            validation.judge(paths, |error| Status::bad_request(error))
        };
        let refused = "strict decoding error: unknown field \"spec.a\", unknown field \"b\"";
        assert_eq!(judge("", &paths).expect("only warnings"), texts);
        assert_eq!(
            judge("fieldValidation=Warn", &paths).expect("only warnings"),
            texts
        );
        assert!(judge("fieldValidation=Ignore", &paths).is_ok_and(|texts| texts.is_empty()));
        let strict = judge("fieldValidation=Strict", &paths).expect_err("unknown fields");
        assert_eq!((strict.code, strict.message.as_str()), (400, refused));
        assert!(judge("fieldValidation=Strict", &[]).is_ok());
        assert_eq!(
            judge("fieldValidation=x", &[]).expect_err("no value").code,
            422
        );
    }
}
