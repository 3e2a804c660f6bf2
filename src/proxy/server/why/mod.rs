//! Why: says which way a request would take, stage by stage, and what would change it.
//!
//! The same functions decide as for the request itself. Nothing is sent, started, counted or noted,
//! except that the API server may be asked about rights: those of the caller, or those of another
//! user whom the caller may impersonate.
//!
//! ```text
//! module        what it does
//! question      reads the question: a request, and perhaps the user that sends it
//! asker         authenticates the caller that asks, and limits its rate
//! stages        takes the request through the stages
//! explanation   the answer
//! ```

mod asker;
mod explanation;
mod question;
mod stages;

use asker::Askers;
pub use explanation::{Change, ExpectedOutcome, ExplainedStage, Explanation, StageOutcome};
use http::HeaderMap;
use kubefan_core::api::Status;
use question::Question;

use super::service::Server;
use crate::net::ClientHandle;

/// Answers questions about requests.
#[derive(Default)]
pub(super) struct Why {
    askers: Askers,
}

impl Why {
    /// Answers the question in `query`. The headers and the client of the request that asks show
    /// whose question it is. Cancel safe.
    ///
    /// # Errors
    /// The Status of the refusal: the question is malformed, or the caller may not ask it, or asks too
    /// often.
    pub(super) async fn answer(
        &self,
        server: &Server,
        (headers, client): (HeaderMap, ClientHandle),
        query: &str,
    ) -> Result<Explanation, Status> {
        let question = Question::parse(query)?;
        let asked = self.askers.exchange(server, (headers, client), question);
        let (exchange, caller) = asked.await?;
        Ok(stages::explain(server, exchange, caller).await)
    }
}
