//! The error for invalid parameters of a read.

/// A query parameter that cannot be parsed, or that contradicts another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{parameter}: {problem}")]
pub struct Malformed {
    /// The parameter's name in the query string, such as `limit`.
    pub parameter: &'static str,
    /// The problem with the parameter's value, for people.
    pub problem: String,
}

impl Malformed {
    /// Makes the error that reports `problem` with `parameter`.
    pub(crate) fn new(parameter: &'static str, problem: impl Into<String>) -> Self {
        Self {
            parameter,
            problem: problem.into(),
        }
    }
}
