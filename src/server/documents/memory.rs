//! The documents that were received, bounded in bytes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::header;
use parking_lot::Mutex;

use super::key::DocumentKey;

/// Upper limit, in bytes, of all documents together.
const MAX_TOTAL: usize = 64 << 20;
/// Longest document, in bytes, that is remembered. The longest one of Kubernetes itself has 5 MB.
pub(super) const MAX_DOCUMENT: usize = 16 << 20;

/// An answer of the API server.
#[derive(Debug)]
pub(super) struct Document {
    /// The headers of the answer. Some of them belong to the request that it was for.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The newest documents, by their representation. Those that were not used for the longest time
/// make room for others.
#[derive(Debug, Default)]
pub(super) struct Memory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    documents: HashMap<DocumentKey, Entry>,
    bytes: usize,
    /// Counts the uses of all documents.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    document: Arc<Document>,
    last_used: u64,
}

impl Document {
    /// What the API server compares with `If-None-Match`.
    pub(super) fn etag(&self) -> Option<&HeaderValue> {
        self.headers.get(header::ETAG)
    }

    /// The bytes that it takes, with its key.
    fn len(&self, key: &DocumentKey) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len());
        key.len() + headers.sum::<usize>() + self.body.len()
    }
}

impl Memory {
    /// The newest document for `key`.
    pub(super) fn get(&self, key: &DocumentKey) -> Option<Arc<Document>> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let now = inner.clock;
        let entry = inner.documents.get_mut(key)?;
        entry.last_used = now;
        Some(Arc::clone(&entry.document))
    }

    /// Remembers `document`, and forgets others if there is no room for all.
    pub(super) fn put(&self, key: DocumentKey, document: Document) {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        inner.bytes += document.len(&key);
        let entry = Entry {
            document: Arc::new(document),
            last_used: inner.clock,
        };
        if let Some(replaced) = inner.documents.insert(key.clone(), entry) {
            inner.bytes -= replaced.document.len(&key);
        }
        while inner.bytes > MAX_TOTAL {
            let oldest = inner
                .documents
                .iter()
                .min_by_key(|(_, entry)| entry.last_used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            inner.remove(&oldest);
        }
    }

    /// The bytes of all documents.
    pub(super) fn bytes(&self) -> usize {
        self.inner.lock().bytes
    }
}

impl Inner {
    fn remove(&mut self, key: &DocumentKey) {
        if let Some(removed) = self.documents.remove(key) {
            self.bytes -= removed.document.len(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::body;
    use crate::server::request::RequestInfo;

    fn key(url: &str) -> DocumentKey {
        let request = Request::get(url).body(body::empty()).expect("a request");
        let info = RequestInfo::parse(request.method(), request.uri().path(), "");
        DocumentKey::of(&request, &info, |_, _| true).expect("a document")
    }

    fn document(bytes: usize) -> Document {
        Document {
            headers: HeaderMap::new(),
            body: vec![b'x'; bytes].into(),
        }
    }

    #[test]
    fn the_least_recently_used_documents_make_room() {
        let memory = Memory::default();
        let keys: Vec<_> = (0..4).map(|n| key(&format!("/apis/g{n}/v1"))).collect();
        for key in &keys {
            memory.put(key.clone(), document(MAX_DOCUMENT - 100));
        }
        assert!(memory.get(&keys[0]).is_some());
        memory.put(key("/version"), document(1000));
        let kept: Vec<_> = keys.iter().map(|key| memory.get(key).is_some()).collect();
        assert_eq!(kept, [true, false, true, true]);
        assert!(memory.bytes() <= MAX_TOTAL);
    }

    #[test]
    fn a_replaced_document_takes_no_room() {
        let memory = Memory::default();
        for bytes in [500, 700, 20] {
            memory.put(key("/version"), document(bytes));
            assert_eq!(memory.bytes(), bytes + "/version".len());
        }
    }
}
