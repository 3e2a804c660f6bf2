//! Builds the bodies of answers: chunks of shared bytes, bursts of events, gzip, and WebSockets.

mod chunk_size;
mod chunks;
mod gzip;
mod list_bodies;
mod list_key;
mod lists;
mod merged;
mod revocable_body;
mod watch_body;
mod websocket;

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
pub(crate) use chunks::{Chunks, GZIP_THRESHOLD};
pub(crate) use gzip::{
    COMPRESSOR_BYTES, GzipBody, InitialChunkCache, chunk_counter, client_accepts_gzip,
    with_gzip_headers,
};
use gzip::{GzipWatchBody, InitialEvents, compressed_event};
use http::{HeaderValue, Response, Version};
use http_body::Frame;
use kubefan_core::body;
use kubefan_core::body::{Body, BoxError, YieldingBody};
use kubefan_core::cache::InitialObjects;
use kubefan_core::codec::{ListParts, Representation, View};
use kubefan_core::concurrency::{AskerId, Revocable};
use kubefan_core::informer::ProofMethod;
use kubefan_core::upstream::PROOF_HEADER;
pub(crate) use list_bodies::{ListBodies, RoomForBodies};
pub(crate) use list_key::ListKey;
use lists::{Begun, ListBytes, Making, SharedList};
pub(crate) use lists::{ListCache, ListCounters, ListInfo, Unshared};
pub(crate) use revocable_body::{BodyReader, RevocableBody};
use tokio::sync::SemaphorePermit;
#[cfg(any(test, feature = "test-support"))]
pub use watch_body::without_jitter;
pub(crate) use watch_body::{WatchBody, WatchSource};
pub(super) use websocket::{charge_websocket, over_websocket};

use super::answers::answer::Answer;
use super::answers::rescue;
use super::cached::collection::Collection;
use super::decide::WatchTerms;
use super::request::Exchange;
use crate::ledger::{Account, ListedWatch, Registration, Revoke, SnapshotAge};
use crate::net::ClientConnection;

/// What polling a body for its next frame returns.
pub(super) type PolledFrame<E = BoxError> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// How the answer to a read is encoded and sent.
pub(super) struct Delivery<'a> {
    representation: Representation,
    /// The long lists that clients share; `None` if nothing is shared.
    lists: Option<&'a ListCache>,
    /// Whether long lists are compressed.
    accepts_gzip: bool,
    /// Compresses the initial events of watches; `None` if the client does not get them as gzip.
    initial_chunks: Option<&'a InitialChunkCache>,
    /// True for HTTP/2, where sending a frame costs as much as copying some KiB.
    is_http2: bool,
    /// Whether each event of a watch is sent in a separate frame, even if several events are
    /// waiting. Over a WebSocket each event is one message.
    pub(super) one_event_per_frame: bool,
    /// The client as an asker of bridges: askers share the few places of bridges.
    pub(super) asker: AskerId,
    /// The account of the client's connection; `None` in the simulator.
    account: Option<Arc<Account>>,
    /// The client's connection; `None` if the request was not received from one.
    connection: Option<ClientConnection>,
}

/// How a request gets a list.
pub(super) enum ListStart<'a> {
    /// The list is in the cache.
    Found(SharedList),
    /// The request makes the list while it has the `turn`: for equal requests too if it is `making`
    /// the list, else for its client only.
    Make {
        turn: Option<SemaphorePermit<'a>>,
        making: Option<Making>,
    },
    /// The list can't be made: an equal request has failed.
    Failed,
}

/// The stream expires when the client goes on reading.
impl Revoke for Revocable<InitialObjects> {
    fn revoke(&self) {
        Revocable::revoke(self);
    }
}

impl<'a> Delivery<'a> {
    /// Creates the delivery of the answer to `exchange`. Watch-lists are compressed only with
    /// `chunks`, and never over a WebSocket.
    pub(super) fn of(
        exchange: &Exchange,
        representation: Representation,
        is_websocket: bool,
        lists: &'a ListCache,
        chunks: Option<&'a InitialChunkCache>,
    ) -> Self {
        let accepts_gzip = client_accepts_gzip(&exchange.request);
        Self {
            representation,
            lists: Some(lists),
            accepts_gzip,
            initial_chunks: chunks.filter(|_| accepts_gzip && !is_websocket),
            is_http2: exchange.request.version() == Version::HTTP_2,
            one_event_per_frame: is_websocket,
            asker: AskerId::of(&exchange.holder()),
            account: exchange.client.account.clone(),
            connection: Some(exchange.client.connection.clone()),
        }
    }

    /// Creates a delivery without compression. Each part of the answer, and each watch event, is
    /// sent in a separate frame.
    pub(super) fn plain(representation: Representation) -> Self {
        Self {
            representation,
            lists: None,
            accepts_gzip: false,
            initial_chunks: None,
            is_http2: false,
            one_event_per_frame: true,
            asker: AskerId::of(&()),
            account: None,
            connection: None,
        }
    }

    /// Creates a delivery to `connection`, without an account, that shares `lists`.
    #[cfg(test)]
    pub(super) fn sharing(
        representation: Representation,
        lists: &'a ListCache,
        connection: &ClientConnection,
    ) -> Self {
        Self {
            lists: Some(lists),
            connection: Some(connection.clone()),
            ..Self::plain(representation)
        }
    }

    /// Creates a body of `parts`, which have `length` bytes in total. It is indented if the client
    /// requested indented JSON.
    pub(super) fn chunks<P>(&self, parts: P, length: u64) -> Chunks<P>
    where
        P: Iterator<Item = Bytes> + Clone + Send + Unpin + 'static,
    {
        let chunks = Chunks::new(parts, length);
        if self.representation.indent {
            chunks.indented()
        } else {
            chunks
        }
    }

    /// Returns the response with the body `chunks`. Short parts are copied into one frame for
    /// HTTP/2, and for Tables, because their rows are short.
    pub(super) fn answer<P>(&self, chunks: Chunks<P>) -> Response<Body>
    where
        P: Iterator<Item = Bytes> + Clone + Send + Unpin + 'static,
    {
        let is_gathered = self.is_http2 || self.representation.view.is_table();
        self.response(if is_gathered {
            chunks.gathered()
        } else {
            chunks.boxed()
        })
    }

    /// Returns true if other clients can share the client's long lists. Without gzip, these are only
    /// those that are converted: complete objects are sent as the cache has them.
    pub(super) fn shares_lists(&self) -> bool {
        self.lists.is_some() && (self.accepts_gzip || self.representation.view != View::Whole)
    }

    /// Returns true if long lists are compressed.
    pub(super) fn accepts_gzip(&self) -> bool {
        self.accepts_gzip
    }

    /// Returns the list of `key`, or a turn to make it. If another request is making it, waits for
    /// the end of that request. Without a key, the list is for this client only. Cancel safe.
    pub(super) async fn start_list(&self, key: Option<&ListKey>) -> ListStart<'_> {
        let Some((lists, key)) = self.lists.zip(key) else {
            let turn = self.turn().await;
            return ListStart::Make { turn, making: None };
        };
        let account = self.account.as_ref();
        loop {
            if let Some(found) = lists.find(key, account) {
                return ListStart::Found(found);
            }
            // Others wait for the request that makes the list, so it has its turn before.
            let turn = self.turn().await;
            let waiting = match lists.begin(key, account) {
                Begun::Found(found) => return ListStart::Found(found),
                Begun::Make(making) => {
                    let making = Some(making);
                    return ListStart::Make { turn, making };
                }
                Begun::Wait(waiting) => waiting,
            };
            drop(turn);
            match waiting.end().await {
                None => {}
                Some(Unshared::Alone) => {
                    let turn = self.turn().await;
                    return ListStart::Make { turn, making: None };
                }
                Some(Unshared::Failed) => return ListStart::Failed,
            }
        }
    }

    /// Returns the answer with the list in `parts`, of which `info` is known. If the list is long,
    /// its compression or its text is shared with the requests that wait for `making`. `age` is that
    /// of the snapshot. Cancel safe.
    pub(super) async fn list(
        &self,
        making: Option<Making>,
        parts: ListParts<ListBodies>,
        info: ListInfo,
        age: SnapshotAge,
    ) -> Answer {
        let bytes = info.shown.bytes;
        if bytes <= GZIP_THRESHOLD {
            if let Some(making) = making {
                making.end(Unshared::Alone);
            }
        } else if let Some(lists) = self.lists.filter(|_| self.shares_lists()) {
            if self.accepts_gzip {
                let (chunks, account) = (self.chunks(parts, bytes), self.account.as_ref());
                let list = lists.compress(making, chunks, info, account);
                return self.with_list(list, age);
            }
            if let Some(text) = lists.empty_text(making, bytes) {
                return self.with_list(lists.fill(text, parts, info).await, age);
            }
        }
        Answer {
            shown: info.shown,
            snapshot: Some(age),
            ..self.answer(self.chunks(parts, bytes)).into()
        }
    }

    /// Returns the answer with `list`. `age` is that of its snapshot.
    pub(super) fn with_list(&self, list: SharedList, age: SnapshotAge) -> Answer {
        let (response, snapshot) = match list.bytes {
            ListBytes::Gzip(body) => (with_gzip_headers(self.response(body)), Some(age)),
            ListBytes::Text(text) => {
                let length = text.text_length();
                // A text does not hold the snapshot.
                (self.response(self.chunks(text, length).boxed()), None)
            }
        };
        Answer {
            shown: list.shown,
            has_compressor: list.has_compressor,
            snapshot,
            ..response.into()
        }
    }

    /// Waits for a turn to do long work for the client. Cancel safe.
    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.connection.as_ref()?.turn().await
    }

    /// Returns the memory for the bodies of a list that are collected before the list is sent.
    pub(super) fn room_for_bodies(&self) -> RoomForBodies {
        let is_converted = self.representation.view != View::Whole;
        RoomForBodies::new(is_converted, self.account.clone())
    }

    /// Registers the initial objects of a watch, so that the ledger may drop them.
    pub(super) fn register(
        &self,
        initial: Revocable<InitialObjects>,
        snapshot: SnapshotAge,
    ) -> Option<Registration> {
        let account = self.account.as_ref()?;
        Some(account.register(initial, Some(snapshot)))
    }

    /// Lists the watch of `collection` with the events of `source` among those of the client, to be
    /// shown.
    pub(super) fn list_watch(
        &self,
        collection: &dyn Collection,
        source: &WatchSource,
    ) -> Option<ListedWatch> {
        let client = self.account.as_ref()?.client()?;
        let resource = collection.informer()?.resource();
        let stream = match source {
            WatchSource::Stream(stream) => Some(stream),
            WatchSource::Bridge(_) | WatchSource::Expired(_) => None,
        };
        Some(client.list_watch(resource, stream))
    }

    /// Returns the response to a WATCH with `terms`, with the events of `stream`.
    ///
    /// A watch-list is compressed as by the API server: if the client accepts gzip, all of the
    /// watch is compressed, however short it is. `start` has the initial objects, and the key that
    /// is equal for all watches that share their compressed events. `start` is `None` if there is
    /// nothing to share.
    pub(super) fn watch(
        &self,
        stream: WatchBody,
        terms: WatchTerms,
        collection: &Arc<dyn Collection>,
        start: Option<(ListKey, Revocable<InitialObjects>)>,
    ) -> Response<Body> {
        let Some(chunks) = self.initial_chunks_for(terms) else {
            let stream = stream.charged_to(self.account.clone());
            return self.watch_response(body::boxed(YieldingBody::new(stream)));
        };
        let initial = start.map(|(key, objects)| {
            InitialEvents::new(chunks.clone(), key, objects, Arc::clone(collection))
        });
        let stream = GzipWatchBody::new(stream, initial, self.account.clone());
        with_gzip_headers(self.watch_response(body::boxed(YieldingBody::new(stream))))
    }

    /// Returns the response to a WATCH with `terms`. `frame` is its only event.
    pub(super) fn watch_error(&self, frame: Bytes, terms: WatchTerms) -> Response<Body> {
        if self.initial_chunks_for(terms).is_some() {
            match compressed_event(frame.clone()) {
                Ok(gzip) => return with_gzip_headers(self.watch_response(body::full(gzip))),
                Err(error) => tracing::error!(%error, "an event could not be compressed"),
            }
        }
        self.watch_response(body::full(frame))
    }

    /// Returns the chunks of initial events, if a watch with `terms` is compressed.
    pub(super) fn initial_chunks_for(&self, terms: WatchTerms) -> Option<&'a InitialChunkCache> {
        self.initial_chunks.filter(|_| terms.initial_events_end)
    }

    fn watch_response(&self, body: Body) -> Response<Body> {
        rescue::answer(self.representation.format.watch_media_type(), body)
    }

    fn response(&self, body: Body) -> Response<Body> {
        rescue::answer(self.representation.format.media_type(), body)
    }
}

/// Adds the header that names the proof's method to `answer`, if there was a proof.
pub(super) fn with_proof_header(
    mut answer: Response<Body>,
    method: Option<ProofMethod>,
) -> Response<Body> {
    let method = method.map(|method| HeaderValue::from_static(method.name()));
    let headers = answer.headers_mut();
    headers.extend(method.map(|method| (PROOF_HEADER, method)));
    answer
}
