//! The view of the advice.

use super::table::{Cell, Column, Row, Tone};
use crate::pages::{AdviceItem, AdvicePage, Pages};

pub(super) const COLUMNS: [Column; 5] = [
    Column::text("ADVICE", 12),
    Column::text("USER", 8),
    Column::text("AGENT", 8),
    Column::text("EVIDENCE", 20),
    Column::text("FIX", 20),
];
pub(super) const SORTED_BY: usize = 0;

pub(super) fn rows(page: &AdvicePage, pages: &Pages) -> Vec<Row> {
    let items = page.items.iter().enumerate();
    items.map(|(index, item)| row(index, item, pages)).collect()
}

fn row(index: usize, item: &AdviceItem, pages: &Pages) -> Row {
    let user = pages.user_of(&item.client);
    let agent = &item.client.user_agent;
    let cells = vec![
        Cell::text(&item.kind).with_tone(Tone::Warning),
        Cell::text(&user),
        Cell::text(agent),
        Cell::text(&item.evidence),
        Cell::text(&item.fix),
    ];
    // A client may have the same advice for two resources, in a fixed order.
    let key = format!("{user} {agent} {} {index:04}", item.kind);
    let details = vec![
        ("advice", item.kind.clone()),
        ("user", user),
        ("agent", agent.clone()),
        ("evidence", item.evidence.clone()),
        ("what to do", item.fix.clone()),
    ];
    Row::new(key, cells, details)
}
