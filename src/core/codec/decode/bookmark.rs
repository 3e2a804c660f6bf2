//! Reads a bookmark's resource version, and whether the bookmark ends the initial events.

use crate::codec::Error;
use crate::codec::json::Scanner;
use crate::codec::protobuf::{ANNOTATIONS, Fields, RESOURCE_VERSION, texts_of};

/// The annotation that marks the end of a watch's initial events.
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The values that are read from a bookmark's metadata.
#[derive(Default)]
pub(super) struct BookmarkFields {
    pub(super) resource_version: String,
    pub(super) initial_events_end: bool,
}

pub(super) fn read_json(object: &[u8]) -> Result<BookmarkFields, Error> {
    let mut fields = BookmarkFields::default();
    let mut scanner = Scanner::new(object);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        match key.text.0 {
            b"metadata" => fields.json_metadata(&mut scanner)?,
            _ => scanner.skip()?,
        }
    }
    Ok(fields)
}

pub(super) fn read_protobuf(message: &[u8]) -> Result<BookmarkFields, Error> {
    let mut fields = BookmarkFields::default();
    for field in Fields::new(message) {
        let field = field?;
        if field.number == 1 {
            fields.protobuf_metadata(field.bytes()?)?;
        }
    }
    Ok(fields)
}

impl BookmarkFields {
    fn json_metadata(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Error> {
        let mut members = scanner.object()?;
        while let Some(key) = scanner.next_key(&mut members)? {
            match key.text.0 {
                b"resourceVersion" => {
                    self.resource_version = scanner.string()?.unescape()?.into_owned();
                }
                b"annotations" if scanner.peek() == Some(b'{') => self.json_annotations(scanner)?,
                _ => scanner.skip()?,
            }
        }
        Ok(())
    }

    fn json_annotations(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Error> {
        let mut annotations = scanner.object()?;
        while let Some(annotation) = scanner.next_key(&mut annotations)? {
            let is_true = scanner.value()? == b"\"true\"";
            self.initial_events_end |= is_true && annotation.text.is(INITIAL_EVENTS_END);
        }
        Ok(())
    }

    fn protobuf_metadata(&mut self, metadata: &[u8]) -> Result<(), Error> {
        for field in Fields::new(metadata) {
            let field = field?;
            match field.number {
                RESOURCE_VERSION => self.resource_version = field.text()?.to_owned(),
                ANNOTATIONS => {
                    let [key, value] = texts_of(field.bytes()?, [1, 2])?;
                    self.initial_events_end |= key == INITIAL_EVENTS_END && value == "true";
                }
                _ => {}
            }
        }
        Ok(())
    }
}
