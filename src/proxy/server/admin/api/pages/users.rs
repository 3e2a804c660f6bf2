//! The page of the names of users, which needs a right of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubefan_core::api::Status;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::Account;
use crate::server::admin::api::page::{Page, now};
use crate::server::admin::api::sources::Sources;

/// The last part of the path.
pub(in crate::server::admin::api) const NAME: &str = "users";
/// The path that a caller must be allowed to get at the API server.
pub(in crate::server::admin::api) const RIGHT: &str = "/admin/v1/users";
/// The most users of the page.
const MOST: usize = 1_000;

/// The names of the users of open connections, and of those in the bill.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct Users {
    /// When the page was made, by RFC 3339.
    time: String,
    /// The number of users, even if the list has fewer.
    total: usize,
    /// The users by name, at most 1,000.
    items: Vec<User>,
}

/// A user that has sent the last request of a connection, or is in the bill.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct User {
    /// The number of the user on the pages clients, bill and advice.
    number: u64,
    /// The name of the user.
    name: String,
    /// Connections with a last request of this user.
    connections: usize,
}

impl Page for Users {
    const NAME: &'static str = NAME;
    const SUMMARY: &'static str = "The names of the users of open connections, and of those in the bill. Needs the right to \
         get /admin/v1/users.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        let accounts = sources.ledger.accounts();
        let bill = sources.bill.as_ref();
        let billed = bill.map(|bill| bill.users()).unwrap_or_default();
        Ok(Self::of(&accounts, billed, |user| sources.number_of(user)))
    }
}

impl Users {
    /// Returns the page of the users of `accounts`, and of the `billed` ones.
    fn of(
        accounts: &[Arc<Account>],
        billed: BTreeSet<String>,
        number_of: impl Fn(&str) -> u64,
    ) -> Self {
        let mut connections: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let clients = accounts.iter().filter_map(|account| account.client());
        for user in clients.filter_map(|client| client.last_sender().user) {
            *connections.entry(user).or_default() += 1;
        }
        for user in billed {
            connections.entry(user.into()).or_default();
        }
        let total = connections.len();
        let users = connections.into_iter().take(MOST);
        let items = users.map(|(name, connections)| User {
            number: number_of(&name),
            name: name.as_ref().to_owned(),
            connections,
        });
        Self {
            time: now(),
            total,
            items: items.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::ledger::{Client, Ledger, Limits};

    #[test]
    fn each_user_has_its_number_and_its_connections() {
        let ledger = Ledger::new(Limits::default());
        let senders = [Some("joe"), Some("jane"), None, Some("joe")];
        let open = senders.map(|user| {
            let account = ledger.open_account();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            account.set_client(Client::new(address, "http1", false));
            let client = account.client().expect("it was set");
            client.note_sender(user, None);
            account
        });
        let billed = ["joe", "elisabeth"].map(str::to_owned);
        let page = Users::of(&open, billed.into(), |user| user.len() as u64);
        let user = |number, name: &str, connections| User {
            number,
            name: name.to_owned(),
            connections,
        };
        let expected = [
            user(9, "elisabeth", 0),
            user(4, "jane", 1),
            user(3, "joe", 2),
        ];
        assert_eq!(page.items, expected);
        assert_eq!(page.total, 3);
    }
}
