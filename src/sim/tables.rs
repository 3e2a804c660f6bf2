//! Answers as Tables: what kubectl prints.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::SystemTime;

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::api::Object;
use crate::api::Query;
use crate::api::Resource;
use crate::api::Status;
use crate::api::WatchEvent;
use crate::api::WireFormat;
use crate::codec;
use crate::codec::Decoder;
use crate::codec::FrameSplitter;
use crate::codec::IncludeObject;
use crate::codec::ListMetadata;
use crate::codec::MetaVersion;
use crate::codec::Negotiated;
use crate::codec::Printer;
use crate::codec::ReadVerb;
use crate::codec::RowObject;
use crate::codec::TableWriter;
use crate::server;
use crate::server::Body;

/// A longer frame than any object that the simulator takes.
const FRAME_LIMIT: usize = 64 << 20;

/// The Table that a request asks for.
pub(super) struct Table {
    verb: ReadVerb,
    version: MetaVersion,
    include: IncludeObject,
}

/// Turns objects of one resource into rows.
struct Rows {
    resource: Arc<Resource>,
    printer: Printer,
    decoder: Decoder,
    writer: TableWriter,
}

/// The body of a watch, event by event as Tables.
struct Stream {
    body: Body,
    splitter: FrameSplitter,
    rows: Rows,
}

impl Table {
    /// What `accept` and `query` ask for; `None` when it is no Table.
    ///
    /// # Errors
    ///
    /// 400 for an `includeObject` that there is not.
    pub(super) fn asked(accept: &str, verb: &str, query: &str) -> Result<Option<Self>, Status> {
        let verb = match verb {
            "watch" => ReadVerb::Watch,
            "list" => ReadVerb::List,
            _ => ReadVerb::Get,
        };
        if codec::negotiate(Some(accept), verb, false) != Negotiated::Table {
            return Ok(None);
        }
        let is_v1 = |clause: &str| {
            let mut parameters = clause.split(';').map(str::trim);
            clause.contains("as=Table") && parameters.any(|parameter| parameter == "v=v1")
        };
        let version = match accept.split(',').any(is_v1) {
            true => MetaVersion::V1,
            false => MetaVersion::V1Beta1,
        };
        let include = IncludeObject::parse(Query::parse(query).first("includeObject"));
        Ok(Some(Self {
            verb,
            version,
            include: include.map_err(Status::bad_request)?,
        }))
    }

    /// The answer with plain JSON as one with a Table.
    ///
    /// # Errors
    ///
    /// 500 when the plain answer can't be read, which is a fault of the simulator's.
    pub(super) async fn around(
        &self,
        resource: &Arc<Resource>,
        printer: Printer,
        response: Response<Body>,
    ) -> Result<Response<Body>, Status> {
        let rows = Rows {
            resource: Arc::clone(resource),
            decoder: Decoder::new(WireFormat::Json, Arc::default()),
            writer: TableWriter::new(self.version, self.include, printer.columns()),
            printer,
        };
        if self.verb == ReadVerb::Watch {
            return Ok(response.map(|body| {
                server::boxed(Stream {
                    body,
                    splitter: FrameSplitter::new(WireFormat::Json, FRAME_LIMIT),
                    rows,
                })
            }));
        }
        let (parts, body) = response.into_parts();
        let plain = body.collect().await;
        let plain = plain.map_err(|error| Status::internal_error(error.to_string()))?;
        let table = match self.verb {
            ReadVerb::List => rows.list(&plain.to_bytes()),
            ReadVerb::Get | ReadVerb::Watch => rows.object(&plain.to_bytes()),
        };
        let table = table.map_err(|error| Status::internal_error(error.to_string()))?;
        Ok(Response::from_parts(parts, server::full(table)))
    }
}

impl Rows {
    fn list(&self, plain: &Bytes) -> Result<Bytes, codec::Error> {
        let page = self.decoder.list(plain)?;
        let rows = page.items.iter().map(|item| self.row(item));
        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
        let list: Value = serde_json::from_slice(plain).unwrap_or_default();
        let metadata = ListMetadata {
            resource_version: page.resource_version,
            continue_token: page.continue_token.as_deref().unwrap_or_default(),
            remaining_item_count: list["metadata"]["remainingItemCount"].as_u64(),
        };
        Ok(self.writer.list(metadata, &rows))
    }

    fn object(&self, plain: &Bytes) -> Result<Bytes, codec::Error> {
        let object = self.decoder.object(plain)?;
        let row = self.row(&object)?;
        Ok(self.writer.list(object.resource_version.into(), &[row]))
    }

    fn event(&mut self, frame: Bytes) -> Result<Bytes, codec::Error> {
        match self.decoder.event(frame.clone())? {
            WatchEvent::Change {
                event_type, object, ..
            } => {
                let row = self.row(&object)?;
                Ok(self.writer.event(event_type, object.resource_version, &row))
            }
            WatchEvent::Bookmark(bookmark) => {
                let nothing = Value::Object(serde_json::Map::new());
                let cells = self.printer.cells(&nothing, SystemTime::now());
                self.writer.bookmark(&cells, &bookmark)
            }
            // A Status is never converted.
            WatchEvent::Error(_) => Ok(frame),
        }
    }

    fn row(&self, object: &Object) -> Result<String, codec::Error> {
        let api_version = self.resource.gvr.api_version();
        let row = RowObject {
            body: &object.body,
            kind: &self.resource.kind,
            api_version: &api_version,
            resource_version: None,
        };
        let cells = self.printer.cells(&row.parsed()?, SystemTime::now());
        self.writer.row(&cells, row)
    }
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(frame) = this.splitter.next() {
                let event = frame.and_then(|frame| this.rows.event(frame));
                return Poll::Ready(Some(event.map(Frame::data).map_err(Into::into)));
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        this.splitter.push(data);
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
