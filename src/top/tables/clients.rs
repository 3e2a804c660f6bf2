//! The view of the clients: their connections.

use super::table::{Cell, Column, Details, Row, Tone};
use crate::pages::{Connection, Pages};
use crate::text;

/// A watch is slow if its oldest event waits for this time.
const SLOW_SECONDS: f64 = 5.0;

pub(super) const COLUMNS: [Column; 9] = [
    Column::text("ADDRESS", 12),
    Column::text("USER", 8),
    Column::text("AGENT", 8),
    Column::number("WATCHES"),
    Column::number("BEHIND"),
    Column::number("HELD"),
    Column::number("UNREAD"),
    Column::number("REQUESTS"),
    Column::number("AGE"),
];
pub(super) const SORTED_BY: usize = 5;

pub(super) fn rows(pages: &Pages) -> Vec<Row> {
    let connections = pages.snapshot.clients.items.iter();
    connections
        .map(|connection| row(connection, pages))
        .collect()
}

fn row(connection: &Connection, pages: &Pages) -> Row {
    let user = pages.user(connection.user_number);
    let agent = connection.user_agent.as_deref().unwrap_or_default();
    let cells = vec![
        Cell::text(&connection.address),
        Cell::text(&user),
        Cell::text(agent),
        Cell::count(connection.watches),
        behind(connection),
        Cell::bytes(connection.held_bytes),
        Cell::bytes(connection.unread_bytes),
        Cell::count(connection.requests),
        Cell::number(connection.age_seconds, text::age),
    ];
    let details = details(connection, &user, agent);
    Row::new(connection.address.clone(), cells, details)
}

/// Returns by how many events the slowest watch is behind. A slow watch is called so.
fn behind(connection: &Connection) -> Cell {
    let Some(watch) = &connection.slowest_watch else {
        return Cell::count(0);
    };
    let events = watch.behind_events as f64;
    if watch
        .behind_seconds
        .is_some_and(|seconds| seconds >= SLOW_SECONDS)
    {
        return Cell::number(events, |events| format!("slow: {}", text::count(events)))
            .with_tone(Tone::Warning);
    }
    Cell::number(events, text::count)
}

fn details(connection: &Connection, user: &str, agent: &str) -> Details {
    let tls = match connection.tls {
        true => "with TLS",
        false => "without TLS",
    };
    let slowest = match &connection.slowest_watch {
        None => "none is behind".to_owned(),
        Some(watch) => {
            let since = watch.behind_seconds.map(text::age);
            let since = since.map(|age| format!(" for {age}")).unwrap_or_default();
            let resource = watch.resource_name();
            format!(
                "of {resource}, behind by {} events{since}",
                watch.behind_events
            )
        }
    };
    vec![
        ("address", connection.address.clone()),
        ("user", user.to_owned()),
        ("agent", agent.to_owned()),
        ("protocol", format!("{} {tls}", connection.protocol)),
        ("open for", text::age(connection.age_seconds)),
        ("requests in progress", connection.requests.to_string()),
        ("watches", connection.watches.to_string()),
        ("slowest watch", slowest),
        ("held for it", text::bytes(connection.held_bytes as f64)),
        (
            "not read by it",
            text::bytes(connection.unread_bytes as f64),
        ),
    ]
}
