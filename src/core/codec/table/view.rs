//! The Tables of one answer: prints the rows of cached objects, and encodes lists and events.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use memchr::memmem;

use super::clock::Clock;
use super::include_object::IncludeObject;
use super::kept_rows::KeptRows;
use super::part::Document;
use super::printed_row::PrintedRow;
use super::printer::Printer;
use super::writer::{EVENT_BACK, TableWriter, conditions};
use crate::api::{Bookmark, EventType, Object, ResourceVersion, WireFormat};
use crate::codec::metadata::{
    hidden_annotation, json_with_resource_version, metadata, partial_body,
};
use crate::codec::{Error, ListMetadata, MetaVersion, Work};

/// What an event has instead of a row that could not be printed. It is never sent.
const NO_ROW: &[u8] = b"{}";

/// How one answer shows the objects of a cache as Tables.
///
/// The row of an object is printed once for each version of the object, and stored in [`KeptRows`].
#[derive(Debug)]
pub struct TableView {
    printer: Printer,
    writer: TableWriter,
    kept: Arc<KeptRows>,
    clock: Clock,
    /// The end time of ages; `None` if it is the time when a row is encoded.
    now: Option<OnceLock<SystemTime>>,
    has_sent_columns: AtomicBool,
    /// Units of a task's budget that printing has taken since [`TableView::take_work`] was called.
    work: AtomicUsize,
    failure: OnceLock<Error>,
}

/// The kind of the objects in a Table.
#[derive(Clone, Copy)]
pub(crate) struct RowKind<'a> {
    pub(crate) kind: &'a str,
    pub(crate) api_version: &'a str,
    /// The text before the body of a complete object; the cached body lacks this text.
    pub(crate) front: &'a [u8],
}

/// A row of an answer, which is encoded in one piece.
pub(crate) struct Row<'a> {
    printed: Arc<PrintedRow>,
    now: SystemTime,
    /// The object in the row: before its text, its text and after it.
    object: (&'a [u8], Cow<'a, [u8]>, &'static [u8]),
    /// True if the row was printed for this answer, because it was not stored.
    is_new: bool,
}

impl TableView {
    /// Creates a view of the cache with the stored rows `kept`, which `printer` must have printed.
    /// Ages end at the time of `clock`.
    ///
    /// In a list, all ages end at the first call of [`TableView::now`], or when the first
    /// row is encoded. In a watch, an age ends when its row is encoded, so two encodings
    /// of one row may differ.
    pub fn new(
        printer: Printer,
        (version, include): (MetaVersion, IncludeObject),
        kept: Arc<KeptRows>,
        clock: Clock,
        is_watch: bool,
    ) -> Self {
        Self {
            writer: TableWriter::new(version, include, printer.columns()),
            printer,
            kept,
            clock,
            now: (!is_watch).then(OnceLock::new),
            has_sent_columns: AtomicBool::new(false),
            work: AtomicUsize::new(0),
            failure: OnceLock::new(),
        }
    }

    /// Returns the end time of the ages in the next row.
    pub fn now(&self) -> SystemTime {
        match &self.now {
            Some(now) => *now.get_or_init(|| self.clock.now()),
            None => self.clock.now(),
        }
    }

    /// Returns the error of the first object that could not be printed. If there is one, nothing
    /// that was encoded may be sent.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Returns the units of a task's budget that printing has taken since the last call of this
    /// method (see [`Work`]).
    pub fn take_work(&self) -> usize {
        self.work.swap(0, Ordering::Relaxed)
    }

    /// Returns the units of a task's budget that printing has taken since the last call of
    /// [`TableView::take_work`].
    pub fn work(&self) -> usize {
        self.work.load(Ordering::Relaxed)
    }

    /// Returns the row of `object`. If the object can't be printed, records the failure of the view
    /// and returns `None`.
    pub(crate) fn row<'a>(&self, object: &'a Object, kind: RowKind<'a>) -> Option<Row<'a>> {
        let row = match self.kept.get(object) {
            Some(kept) => self.row_of(kept, Cow::Borrowed(&object.body), kind),
            None => self.print(&object.body, kind).and_then(|printed| {
                let printed = Arc::new(printed);
                self.kept.keep(object, &printed);
                self.work
                    .fetch_add(Work::Printed.units(object), Ordering::Relaxed);
                let row = self.row_of(printed, Cow::Borrowed(&object.body), kind)?;
                Ok(Row {
                    is_new: true,
                    ..row
                })
            }),
        };
        self.checked(row)
    }

    /// Returns the row of a deleted object with `at`, the version of its deletion. If the object
    /// can't be printed, records the failure of the view and returns `None`.
    pub(crate) fn deleted_row<'a>(
        &self,
        object: &Object,
        kind: RowKind<'a>,
        at: ResourceVersion,
    ) -> Option<Row<'a>> {
        // The version may be in the cells too, so they are printed from the changed object.
        let body = json_with_resource_version(&object.body, at).map(Bytes::from);
        let row = body.and_then(|body| {
            let printed = Arc::new(self.print(&body, kind)?);
            self.row_of(printed, Cow::Owned(body), kind)
        });
        self.checked(row)
    }

    fn row_of<'a>(
        &self,
        printed: Arc<PrintedRow>,
        body: Cow<'a, Bytes>,
        kind: RowKind<'a>,
    ) -> Result<Row<'a>, Error> {
        let object = match self.writer.include {
            IncludeObject::None => (&b"null"[..], Cow::Borrowed(&b""[..]), &b""[..]),
            IncludeObject::Metadata => {
                let text = match (printed.metadata(), body) {
                    (Some(place), Cow::Borrowed(body)) => Cow::Borrowed(&body[place]),
                    (Some(place), Cow::Owned(body)) => Cow::Owned(body[place].to_vec()),
                    (None, body) => {
                        let hidden = hidden_annotation(kind.api_version, kind.kind);
                        let json = WireFormat::Json;
                        Cow::Owned(partial_body(json, json, hidden, &body, None)?.into())
                    }
                };
                (self.writer.partial_front(), text, &b"}"[..])
            }
            IncludeObject::Object => {
                let front = match body.first() {
                    Some(b'{') => &b""[..],
                    _ => kind.front,
                };
                let text = match body {
                    Cow::Borrowed(body) => Cow::Borrowed(&body[..]),
                    Cow::Owned(body) => Cow::Owned(body.into()),
                };
                (front, text, &b""[..])
            }
        };
        Ok(Row {
            printed,
            now: self.now(),
            object,
            is_new: false,
        })
    }

    fn print(&self, body: &Bytes, kind: RowKind<'_>) -> Result<PrintedRow, Error> {
        let document = Document::new(body);
        let object = document.root();
        let conditions = conditions(kind.api_version, kind.kind, object);
        let cells = self.printer.unprinted(object);
        if document.is_malformed() {
            return Err(Error::Json {
                expected: "an object",
                offset: 0,
            });
        }
        let place = unchanged_metadata(body, kind)?;
        Ok(PrintedRow::new(cells, conditions, place))
    }

    fn checked<'a>(&self, row: Result<Row<'a>, Error>) -> Option<Row<'a>> {
        row.inspect_err(|error| self.failed(error.clone())).ok()
    }

    /// Returns the text before and after the rows of a list.
    pub(crate) fn list_ends(&self, metadata: ListMetadata<'_>, is_empty: bool) -> (Bytes, Bytes) {
        let open = self.writer.open(metadata, true);
        if is_empty && self.printer.has_null_rows {
            return ((open + "null").into(), Bytes::from_static(b"}\n"));
        }
        ((open + "[").into(), Bytes::from_static(b"]}\n"))
    }

    /// Returns a complete watch frame with one row. If there is no row because the view has failed,
    /// the frame has `{}` in its place. Only a stream's first frame has the columns, unless the
    /// kind repeats them.
    pub(crate) fn event(
        &self,
        event_type: EventType,
        resource_version: ResourceVersion,
        row: Option<&Row<'_>>,
    ) -> Bytes {
        let length = row.map_or(NO_ROW.len(), Row::length);
        self.frame(
            event_type.as_str(),
            resource_version,
            length,
            |frame| match row {
                Some(row) => row.put(frame),
                None => frame.extend_from_slice(NO_ROW),
            },
        )
    }

    /// Returns a complete BOOKMARK frame with the content of `bookmark`, which is the frame of a
    /// plain watch.
    pub(crate) fn bookmark(&self, bookmark: &Bookmark) -> Bytes {
        let now = self.now();
        let cells = self.printer.bookmark_cells(bookmark, now);
        let row = self.writer.bookmark_row(&cells, bookmark);
        let row = row.unwrap_or_else(|error| {
            self.failed(error);
            "{}".to_owned()
        });
        let rv = bookmark.resource_version;
        self.frame("BOOKMARK", rv, row.len(), |frame| {
            frame.extend_from_slice(row.as_bytes());
        })
    }

    fn failed(&self, error: Error) {
        // Only the first failure is needed.
        self.failure.set(error).ok();
    }

    fn frame(
        &self,
        event_type: &str,
        rv: ResourceVersion,
        row_length: usize,
        put_row: impl FnOnce(&mut Vec<u8>),
    ) -> Bytes {
        let is_first = !self.has_sent_columns.swap(true, Ordering::Relaxed);
        let has_columns = is_first || self.printer.repeats_columns;
        let front = self.writer.event_front(event_type, rv, has_columns);
        let mut frame = Vec::with_capacity(front.len() + row_length + EVENT_BACK.len());
        frame.extend_from_slice(front.as_bytes());
        put_row(&mut frame);
        frame.extend_from_slice(EVENT_BACK.as_bytes());
        frame.into()
    }
}

impl Row<'_> {
    /// Returns the work that was done to make the row.
    pub(crate) fn work(&self) -> Work {
        match &self.object {
            _ if self.is_new => Work::Printed,
            (_, Cow::Owned(_), _) => Work::Converted,
            _ => Work::None,
        }
    }

    /// Returns the length of the row in bytes.
    pub(crate) fn length(&self) -> usize {
        let (front, text, back) = &self.object;
        let object = front.len() + text.len() + back.len();
        self.printed.length(self.now) + object + 1
    }

    /// Appends the row.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let (front, text, back) = &self.object;
        self.printed.put(out, self.now);
        out.extend_from_slice(front);
        out.extend_from_slice(text);
        out.extend_from_slice(back);
        out.push(b'}');
    }

    /// Returns the encoded row.
    pub(crate) fn encoded(&self) -> Bytes {
        let mut row = Vec::with_capacity(self.length());
        self.put(&mut row);
        row.into()
    }
}

impl PartialEq for TableView {
    /// Returns true only for a view and itself, because a view belongs to one answer.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for TableView {}

/// Returns the place of the metadata in `body`, if a PartialObjectMetadata has this text unchanged.
fn unchanged_metadata(body: &[u8], kind: RowKind<'_>) -> Result<Option<Range<usize>>, Error> {
    let place = metadata(body)?;
    let hidden = hidden_annotation(kind.api_version, kind.kind);
    let is_changed = body.first() == Some(&b'{')
        || hidden
            .is_some_and(|hidden| memmem::find(&body[place.clone()], hidden.as_bytes()).is_some());
    Ok((!is_changed).then_some(place))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::codec::RowMemory;

    #[test]
    fn each_event_of_the_aggregators_objects_has_the_columns() {
        let api_service = Printer::built_in("apiregistration.k8s.io/v1", "APIService");
        for (printer, expected) in [
            (Printer::fallback(), [true, false]),
            (api_service.expect("it is printed"), [true, true]),
        ] {
            let kept = Arc::new(KeptRows::new(Arc::new(RowMemory::new(0))));
            let shown = (MetaVersion::V1, IncludeObject::None);
            let view = TableView::new(printer, shown, kept, Clock::default(), true);
            let has_columns = [7, 8].map(|rv| {
                let event = view.event(EventType::Modified, ResourceVersion(rv), None);
                memmem::find(&event, b"columnDefinitions\":[").is_some()
            });
            assert_eq!(has_columns, expected);
        }
    }

    #[test]
    fn ages_end_at_the_time_of_the_clock() {
        const HOUR: Duration = Duration::from_secs(3600);
        for is_watch in [false, true] {
            let clock = Clock::default();
            let hour = i64::try_from(HOUR.as_millis()).expect("small");
            clock.observe(&(hour..=hour));
            let kept = Arc::new(KeptRows::new(Arc::new(RowMemory::new(0))));
            let shown = (MetaVersion::V1, IncludeObject::None);
            let view = TableView::new(Printer::fallback(), shown, kept, clock, is_watch);
            let own = SystemTime::now();
            let found = view.now().duration_since(own).expect("later");
            assert!(found >= HOUR && found < 2 * HOUR, "{found:?}");
        }
    }
}
