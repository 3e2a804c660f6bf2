//! The bill and the advice. `docs/bill.md` describes the fields.

use serde::Deserialize;

/// What each client uses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Bill {
    /// The number of clients with rows; `clients` may have fewer.
    pub(crate) clients_with_rows: usize,
    pub(crate) clients: Vec<Client>,
    /// What all clients have used since kubefan began.
    pub(crate) total: Numbers,
}

/// A user with one of its programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClientName {
    pub(crate) user_number: Option<u64>,
    /// Only if the user is not known.
    pub(crate) address: Option<String>,
    pub(crate) user_agent: String,
}

/// What one client uses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Client {
    pub(crate) client: ClientName,
    pub(crate) seconds: f64,
    pub(crate) open_watches: u64,
    pub(crate) opened_watches: u64,
    pub(crate) total: Numbers,
    pub(crate) minute: Numbers,
    pub(crate) forwarded: Vec<Forwarded>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) slow: Option<Slow>,
    pub(crate) advice: Vec<Advice>,
}

/// The requests that were forwarded for one reason.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Forwarded {
    pub(crate) reason: String,
    pub(crate) requests: u64,
}

/// A verb, a resource, and how objects are selected.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Operation {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) selector: String,
    pub(crate) open: u64,
    pub(crate) minute: Numbers,
}

/// Answers that are behind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Slow {
    pub(crate) answers: u64,
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) events: u64,
    pub(crate) waited_seconds: f64,
}

/// Counts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Numbers {
    pub(crate) requests: u64,
    pub(crate) hits: u64,
    pub(crate) forwards: u64,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) events: u64,
    pub(crate) waited_seconds: f64,
    pub(crate) unauthorized: u64,
    pub(crate) forbidden: u64,
    pub(crate) gone: u64,
    pub(crate) too_many: u64,
    pub(crate) stalls: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) saved: Saved,
}

/// What the API server was saved.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Saved {
    pub(crate) requests: u64,
    pub(crate) objects: u64,
    pub(crate) events: u64,
    pub(crate) seats: u64,
    pub(crate) estimated_cpu_seconds: f64,
}

/// What a client should change.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Advice {
    pub(crate) kind: String,
    pub(crate) evidence: String,
    pub(crate) fix: String,
}

/// The advice about all clients.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AdvicePage {
    pub(crate) total: usize,
    pub(crate) items: Vec<AdviceItem>,
}

/// What one client should change.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AdviceItem {
    pub(crate) client: ClientName,
    pub(crate) kind: String,
    pub(crate) evidence: String,
    pub(crate) fix: String,
}

// === impl Numbers ===

impl Numbers {
    /// Returns the number of answers that show that something is wrong with the client.
    pub(crate) fn errors(&self) -> u64 {
        self.unauthorized + self.forbidden + self.gone + self.too_many + self.stalls
    }
}
