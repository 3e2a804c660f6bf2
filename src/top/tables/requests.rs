//! The view of the requests: the bill.

use super::table::{Cell, Column, Details, Row, Tone};
use crate::pages::{Bill, Client, Numbers, Operation, Pages, Slow, resource_name};
use crate::text;

/// The counts are those of the last minute, but SAVED.
pub(super) const COLUMNS: [Column; 11] = [
    Column::text("USER", 8),
    Column::text("AGENT", 8),
    Column::number("REQ/MIN"),
    Column::number("CACHED"),
    Column::number("SAVED"),
    Column::number("ERRORS"),
    Column::number("WATCHES"),
    Column::number("EVENTS"),
    Column::number("BYTES"),
    Column::number("OBJECTS"),
    Column::number("CPU"),
];
pub(super) const SORTED_BY: usize = 2;

pub(super) fn rows(bill: &Bill, pages: &Pages) -> Vec<Row> {
    let clients = bill.clients.iter();
    clients.map(|client| row(client, pages)).collect()
}

fn row(client: &Client, pages: &Pages) -> Row {
    let user = pages.user_of(&client.client);
    let agent = &client.client.user_agent;
    let minute = &client.minute;
    let (hits, all) = (minute.hits as f64, minute.requests as f64);
    let cached = (minute.requests > 0).then_some(hits / all);
    let errors = match minute.errors() {
        0 => Cell::count(0),
        errors => Cell::count(errors).with_tone(Tone::Warning),
    };
    let cells = vec![
        Cell::text(&user),
        Cell::text(agent),
        Cell::count(minute.requests),
        Cell::known(cached, |_| text::percent(hits, all)),
        Cell::number(client.total.saved.estimated_cpu_seconds, text::cpu),
        errors,
        Cell::count(client.open_watches),
        Cell::count(minute.events),
        Cell::bytes(minute.bytes),
        Cell::count(minute.objects),
        Cell::number(minute.cpu_seconds, text::cpu),
    ];
    Row::new(format!("{user} {agent}"), cells, details(client, &user))
}

fn details(client: &Client, user: &str) -> Details {
    let saved = &client.total.saved;
    let mut details = vec![
        ("user", user.to_owned()),
        ("agent", client.client.user_agent.clone()),
        ("known for", text::age(client.seconds)),
        ("open watches", client.open_watches.to_string()),
        (
            "watches opened in the last minute",
            client.opened_watches.to_string(),
        ),
        ("last minute", numbers(&client.minute)),
        ("since then", numbers(&client.total)),
        (
            "saved the API server",
            format!(
                "{} requests, {} objects, {} events, {} seats, about {} of CPU time",
                saved.requests,
                saved.objects,
                saved.events,
                saved.seats,
                text::cpu(saved.estimated_cpu_seconds),
            ),
        ),
    ];
    let reasons = client.forwarded.iter();
    let reasons: Vec<_> = reasons
        .map(|one| format!("{} {}", one.requests, one.reason))
        .collect();
    if !reasons.is_empty() {
        details.push(("forwarded because of", reasons.join(", ")));
    }
    details.extend(
        client
            .slow
            .iter()
            .map(|slow| ("slow reader", slow_reader(slow))),
    );
    details.extend(
        client
            .operations
            .iter()
            .map(|one| ("operation", operation(one))),
    );
    let advice = client.advice.iter();
    details.extend(advice.map(|one| {
        let text = format!("{}: {}. {}.", one.kind, one.evidence, one.fix);
        ("advice", text)
    }));
    details
}

fn slow_reader(slow: &Slow) -> String {
    format!(
        "{} of {} waits for {} with {} events; answers that are behind: {}",
        slow.verb,
        slow.resource,
        text::age(slow.waited_seconds),
        slow.events,
        slow.answers,
    )
}

/// Returns counts as a sentence.
fn numbers(numbers: &Numbers) -> String {
    let mut text = format!(
        "{} requests, {} from caches, {} forwarded; {} objects, {}, {} events; waited for {}",
        numbers.requests,
        numbers.hits,
        numbers.forwards,
        numbers.objects,
        text::bytes(numbers.bytes as f64),
        numbers.events,
        text::cpu(numbers.waited_seconds),
    );
    for (count, name) in [
        (numbers.unauthorized, "answers with 401"),
        (numbers.forbidden, "answers with 403"),
        (numbers.gone, "answers with 410"),
        (numbers.too_many, "answers with 429"),
        (numbers.stalls, "answers broken off"),
    ] {
        if count > 0 {
            text.push_str(&format!("; {count} {name}"));
        }
    }
    text
}

/// Returns what a client does, and how often.
fn operation(operation: &Operation) -> String {
    let resource = match resource_name(&operation.resource, &operation.group) {
        resource if resource.is_empty() => "documents".to_owned(),
        resource => resource,
    };
    let selected = match operation.selector.as_str() {
        "" | "none" => String::new(),
        selector => format!(" by {selector}"),
    };
    let minute = &operation.minute;
    format!(
        "{} {resource}{selected}: {} open; in the last minute {} requests, {} from caches, {}",
        operation.verb,
        operation.open,
        minute.requests,
        minute.hits,
        text::bytes(minute.bytes as f64),
    )
}
