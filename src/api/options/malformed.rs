//! Why the parameters of a read are no use.

/// A parameter that cannot be read, or that contradicts another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{parameter}: {problem}")]
pub struct Malformed {
    /// Its name, as in the query.
    pub parameter: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl Malformed {
    /// `parameter` has a problem.
    pub(crate) fn new(parameter: &'static str, problem: impl Into<String>) -> Self {
        Self {
            parameter,
            problem: problem.into(),
        }
    }
}
