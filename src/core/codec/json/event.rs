//! Reads watch events in JSON.

use std::borrow::Cow;

use super::scanner::Scanner;
use crate::codec::Error;

/// The two members of a watch event: its type and its object.
pub(crate) struct Event<'a, T> {
    pub(crate) event_type: Cow<'a, str>,
    pub(crate) object: T,
}

/// Reads a watch event. `read` reads the object; its second argument is the event's type.
pub(crate) fn event<'a, T>(
    text: &'a [u8],
    read: impl Fn(&mut Scanner<'a>, &str) -> Result<T, Error>,
) -> Result<Event<'a, T>, Error> {
    let mut event_type = None;
    let mut object = None;
    let mut waiting = None;
    let mut scanner = Scanner::new(text);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        match (key.text.0, &event_type) {
            (b"type", _) => event_type = Some(scanner.string()?.unescape()?),
            (b"object", Some(event_type)) => object = Some(read(&mut scanner, event_type)?),
            (b"object", None) => {
                waiting = Some(scanner.clone());
                scanner.skip()?;
            }
            _ => scanner.skip()?,
        }
    }
    let event_type = event_type.ok_or(Error::Missing("type"))?;
    if let Some(mut scanner) = waiting {
        object = Some(read(&mut scanner, &event_type)?);
    }
    Ok(Event {
        event_type,
        object: object.ok_or(Error::Missing("object"))?,
    })
}

/// Reads a watch event and returns the object's bytes unparsed.
pub(crate) fn raw_event(text: &[u8]) -> Result<Event<'_, &[u8]>, Error> {
    event(text, |scanner, _| scanner.value())
}
