//! Reading: the pages of a kubefan at one time.

use kubefan_proxy::admin_client::Error;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::bill::{AdvicePage, Bill, ClientName};
use super::snapshot::{Snapshot, Users};

/// A page that a kubefan may have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Page<T> {
    Shown(T),
    /// This kubefan has no such page.
    Absent,
    /// The page could not be read; the text says why.
    Failed(String),
}

/// What a kubefan has shown at one time, as JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) snapshot: Value,
    pub(crate) bill: Page<Value>,
    pub(crate) advice: Page<Value>,
    pub(crate) users: Page<Value>,
}

/// What a kubefan has shown at one time.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    pub(crate) snapshot: Snapshot,
    pub(crate) bill: Page<Bill>,
    pub(crate) advice: Page<AdvicePage>,
    pub(crate) users: Page<Users>,
}

// === impl Page ===

impl Page<Value> {
    fn decoded<T: DeserializeOwned>(&self) -> Page<T> {
        match self {
            Self::Shown(value) => match T::deserialize(value) {
                Ok(page) => Page::Shown(page),
                Err(error) => Page::Failed(format!("kubefan top cannot read it: {error}")),
            },
            Self::Absent => Page::Absent,
            Self::Failed(problem) => Page::Failed(problem.clone()),
        }
    }
}

impl<T> Page<T> {
    /// Returns the page, if it is shown.
    pub(crate) fn shown(&self) -> Option<&T> {
        match self {
            Self::Shown(page) => Some(page),
            Self::Absent | Self::Failed(_) => None,
        }
    }
}

// === impl Reading ===

impl Reading {
    /// Returns the snapshot with the other pages as further fields.
    pub(crate) fn into_json(self) -> Value {
        let mut json = self.snapshot;
        let further = [
            ("bill", self.bill),
            ("advice", self.advice),
            ("users", self.users),
        ];
        for (name, page) in further {
            if let (Page::Shown(page), Some(fields)) = (page, json.as_object_mut()) {
                fields.insert(name.to_owned(), page);
            }
        }
        json
    }

    /// Returns the pages with their types.
    ///
    /// # Errors
    /// If the snapshot is not one of a kubefan.
    pub(crate) fn pages(&self) -> Result<Pages, Error> {
        Ok(Pages {
            snapshot: Snapshot::deserialize(&self.snapshot).map_err(Error::Malformed)?,
            bill: self.bill.decoded(),
            advice: self.advice.decoded(),
            users: self.users.decoded(),
        })
    }
}

// === impl Pages ===

impl Pages {
    /// Returns the user of a client, or its address if the user is not known.
    pub(crate) fn user_of(&self, client: &ClientName) -> String {
        match &client.address {
            Some(address) if client.user_number.is_none() => address.clone(),
            _ => self.user(client.user_number),
        }
    }

    /// Returns what is shown for a user with this number: the name, or the number.
    pub(crate) fn user(&self, number: Option<u64>) -> String {
        let Some(number) = number else {
            return String::new();
        };
        let users = self.users.shown().into_iter();
        let mut users = users.flat_map(|users| &users.items);
        match users.find(|user| user.number == number) {
            Some(user) => user.name.clone(),
            None => format!("#{number}"),
        }
    }
}
