//! View: which rows and columns each view has.

use super::layout::plain;
use super::rates::Rates;
use super::table::{Column, Table};
use super::{advice, caches, clients, requests};
use crate::pages::{Page, Pages};
use crate::text;

/// The views, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Caches,
    Clients,
    Requests,
    Advice,
}

/// What a view shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Table(Table),
    /// There is no table; the text says why.
    Nothing(String),
}

// === impl View ===

impl View {
    pub(crate) const ALL: [Self; 4] = [Self::Caches, Self::Clients, Self::Requests, Self::Advice];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Caches => "caches",
            Self::Clients => "clients",
            Self::Requests => "requests",
            Self::Advice => "advice",
        }
    }

    pub(crate) fn columns(self) -> &'static [Column] {
        match self {
            Self::Caches => &caches::COLUMNS,
            Self::Clients => &clients::COLUMNS,
            Self::Requests => &requests::COLUMNS,
            Self::Advice => &advice::COLUMNS,
        }
    }

    /// Returns the column by which the view is sorted at first.
    pub(crate) fn sorted_by(self) -> usize {
        match self {
            Self::Caches => caches::SORTED_BY,
            Self::Clients => clients::SORTED_BY,
            Self::Requests => requests::SORTED_BY,
            Self::Advice => advice::SORTED_BY,
        }
    }

    /// Returns the number of rows that kubefan has, even if the page has fewer; `None` without the
    /// page.
    pub(crate) fn total(self, pages: &Pages) -> Option<usize> {
        match self {
            Self::Caches => Some(pages.snapshot.caches.total),
            Self::Clients => Some(pages.snapshot.clients.total),
            Self::Requests => Some(pages.bill.shown()?.clients_with_rows),
            Self::Advice => Some(pages.advice.shown()?.total),
        }
    }

    /// Returns what the view shows. All text in it is harmless.
    pub(crate) fn content(self, pages: &Pages, rates: &Rates) -> Content {
        let rows = match self {
            Self::Caches => Ok(caches::rows(pages, rates)),
            Self::Clients => Ok(clients::rows(pages)),
            Self::Requests => self
                .of_page(&pages.bill)
                .map(|bill| requests::rows(bill, pages)),
            Self::Advice => self
                .of_page(&pages.advice)
                .map(|page| advice::rows(page, pages)),
        };
        match rows {
            Ok(rows) => Content::Table(Table {
                columns: self.columns(),
                rows,
            }),
            Err(problem) => Content::Nothing(problem),
        }
    }

    fn of_page<T>(self, page: &Page<T>) -> Result<&T, String> {
        let name = self.name();
        match page {
            Page::Shown(page) => Ok(page),
            Page::Absent => Err(format!("This kubefan does not show {name}.")),
            Page::Failed(problem) => {
                let problem = text::harmless(problem);
                Err(format!("The {name} can't be read: {problem}"))
            }
        }
    }
}

// === impl Content ===

impl Content {
    /// Returns the content as text for a file or a pipe.
    pub(crate) fn plain(mut self, sorted_by: usize) -> String {
        match &mut self {
            Self::Table(table) => {
                table.sort(sorted_by, true);
                plain(table)
            }
            Self::Nothing(problem) => format!("{problem}\n"),
        }
    }
}
