//! The documents that were received, bounded in bytes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use parking_lot::Mutex;

use super::key::{DocumentKey, VersionHash};
use crate::identity::UserKey;
use crate::ledger::Budget;

/// Upper limit of the number of documents: Kubernetes has about 200.
const MAX_DOCUMENTS: usize = 1_000;
/// Bytes of a document without its body and the texts of its key, mostly for the table of its
/// headers.
const OVERHEAD: usize = 2 << 10;
/// A body of fewer bytes is copied, because it may be a part of a larger buffer.
const COPIED: usize = 64 << 10;
/// The headers that describe a document. All others belong to the request that it was sent for.
const DESCRIPTION: [HeaderName; 8] = [
    header::ACCEPT_RANGES,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::VARY,
];
/// The length of the longest document that is remembered is the budget divided by this: 16 MiB for
/// the largest budget. The longest document of Kubernetes itself has 5 MB.
const DOCUMENT_SHARE: usize = 4;

/// A document that the API server sent.
#[derive(Debug)]
pub(super) struct Document {
    /// The headers that describe the document.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The version that the request for the document named.
    hash: VersionHash,
}

/// The newest documents, by their representation. If there is no room for a new document, the user
/// with the most bytes loses its least recently used documents. Otherwise one user could displace
/// the documents that others read, by varying `Accept`.
#[derive(Debug)]
pub(super) struct Memory {
    inner: Mutex<Inner>,
    budget: Budget,
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
    /// The user that got the first document with this key; `None` for kubefan.
    user: Option<UserKey>,
}

impl Document {
    /// Makes a document of the `headers` and `body` of an answer. The request was for the version
    /// `hash`.
    pub(super) fn new(headers: &HeaderMap, body: Bytes, hash: VersionHash) -> Self {
        let mut description = HeaderMap::new();
        for name in DESCRIPTION {
            for value in headers.get_all(&name) {
                // The value is copied, because it may be a part of a larger buffer.
                let copy = HeaderValue::from_bytes(value.as_bytes());
                description.append(&name, copy.expect("it is a header's value"));
            }
        }
        let body = if body.len() < COPIED {
            Bytes::copy_from_slice(&body)
        } else {
            body
        };
        Self {
            headers: description,
            body,
            hash,
        }
    }

    /// Returns the value that the API server compares with `If-None-Match`.
    pub(super) fn etag(&self) -> Option<&HeaderValue> {
        self.headers.get(header::ETAG)
    }

    /// Returns the bytes of the document and of its key.
    fn len(&self, key: &DocumentKey) -> usize {
        OVERHEAD + key.len() + self.body.len()
    }
}

impl Memory {
    /// Creates an empty memory of at most `budget`.
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            inner: Mutex::default(),
            budget,
        }
    }

    /// Returns the length, in bytes, of the longest document that is remembered.
    pub(super) fn max_document(&self) -> usize {
        self.budget.limit() / DOCUMENT_SHARE
    }

    /// Returns the newest document for `key`, if it was sent for the version `hash`.
    pub(super) fn get(&self, key: &DocumentKey, hash: &VersionHash) -> Option<Arc<Document>> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let now = inner.clock;
        let entry = inner.documents.get_mut(key)?;
        if entry.document.hash != *hash {
            return None;
        }
        entry.last_used = now;
        Some(Arc::clone(&entry.document))
    }

    /// Returns true if [`Memory::get`] would return a document that has an `ETag`. Does not count as
    /// a use of it.
    pub(super) fn has_tagged(&self, key: &DocumentKey, hash: &VersionHash) -> bool {
        let inner = self.inner.lock();
        let document = inner.documents.get(key).map(|entry| &entry.document);
        document.is_some_and(|document| document.hash == *hash && document.etag().is_some())
    }

    /// Returns the newest document for `key`. If there is none, returns a document of this path and
    /// version that was sent for other headers, if a request with the headers of `key` accepts it.
    pub(super) fn acceptable(
        &self,
        key: &DocumentKey,
        hash: &VersionHash,
    ) -> Option<Arc<Document>> {
        if let Some(document) = self.get(key, hash) {
            return Some(document);
        }
        let inner = self.inner.lock();
        let others = inner.documents.iter();
        let accepted = others.filter_map(|(other, entry)| {
            let place = key.place_of(other, &entry.document.headers)?;
            let is_of_version = entry.document.hash == *hash;
            is_of_version.then_some((place, Reverse(entry.last_used), entry))
        });
        let (_, _, best) = accepted.min_by_key(|(place, used, _)| (*place, *used))?;
        Some(Arc::clone(&best.document))
    }

    /// Remembers `document` and returns true. If there is only room for it after other documents
    /// are forgotten, does nothing and returns false.
    pub(super) fn put_if_room(&self, key: DocumentKey, document: Document) -> bool {
        let mut inner = self.inner.lock();
        let replaced = inner.documents.get(&key);
        let replaced = replaced.map(|entry| (1, entry.document.len(&key)));
        let (count, bytes) = replaced.unwrap_or_default();
        let has_room = inner.bytes - bytes + document.len(&key) <= self.budget.limit()
            && inner.documents.len() - count < MAX_DOCUMENTS;
        if has_room {
            inner.put(key, document, None);
            self.budget.set_used(inner.bytes);
        }
        has_room
    }

    /// Remembers `document`, which `user` got, and forgets others if there is no room for all.
    pub(super) fn put(&self, key: DocumentKey, document: Document, user: Option<UserKey>) {
        let mut inner = self.inner.lock();
        inner.put(key, document, user);
        let limit = self.budget.limit();
        while (inner.bytes > limit || inner.documents.len() > MAX_DOCUMENTS)
            && let Some(forgotten) = inner.next_to_forget(limit)
        {
            inner.remove(&forgotten);
        }
        self.budget.set_used(inner.bytes);
    }
}

impl Inner {
    fn put(&mut self, key: DocumentKey, document: Document, user: Option<UserKey>) {
        self.clock += 1;
        self.bytes += document.len(&key);
        let replaced = self.documents.get(&key);
        let entry = Entry {
            document: Arc::new(document),
            last_used: self.clock,
            user: replaced.map_or(user, |replaced| replaced.user),
        };
        if let Some(replaced) = self.documents.insert(key.clone(), entry) {
            self.bytes -= replaced.document.len(&key);
        }
    }

    /// Returns the least recently used document of the user with the largest share.
    fn next_to_forget(&self, limit: usize) -> Option<DocumentKey> {
        // A user may have many bytes or many documents, so each document counts more than its
        // bytes.
        let of_each = limit / MAX_DOCUMENTS;
        let mut shares = HashMap::<_, usize>::new();
        for (key, entry) in &self.documents {
            let share = entry.document.len(key) + of_each;
            *shares.entry(entry.user).or_default() += share;
        }
        let (user, _) = shares.into_iter().max_by_key(|(_, share)| *share)?;
        let entries = self.documents.iter();
        let own = entries.filter(|(_, entry)| entry.user == user);
        let oldest = own.min_by_key(|(_, entry)| entry.last_used);
        oldest.map(|(key, _)| key.clone())
    }

    fn remove(&mut self, key: &DocumentKey) {
        if let Some(removed) = self.documents.remove(key) {
            self.bytes -= removed.document.len(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kubefan_core::body;

    use super::*;
    use crate::server::request::RequestInfo;

    const LIMIT: usize = 64 << 20;

    fn memory() -> Memory {
        Memory::new(Budget::for_tests(LIMIT))
    }

    fn key(url: &str) -> DocumentKey {
        let request = Request::get(url).body(body::empty()).expect("a request");
        let info = RequestInfo::parse(request.method(), request.uri().path(), "");
        let found = DocumentKey::of(&request, &info, |_, _| true);
        found.expect("a document").0
    }

    fn document(bytes: usize) -> Document {
        Document::new(&HeaderMap::new(), vec![b'x'; bytes].into(), None)
    }

    #[test]
    fn the_least_recently_used_documents_make_room() {
        let memory = memory();
        let keys: Vec<_> = (0..4).map(|n| key(&format!("/apis/g{n}/v1"))).collect();
        for key in &keys {
            memory.put(
                key.clone(),
                document(LIMIT / DOCUMENT_SHARE - 2 * OVERHEAD),
                None,
            );
        }
        assert!(memory.get(&keys[0], &None).is_some());
        memory.put(key("/version"), document(5 * OVERHEAD), None);
        let kept = keys.iter().map(|key| memory.get(key, &None).is_some());
        let kept: Vec<_> = kept.collect();
        assert_eq!(kept, [true, false, true, true]);
        assert!(memory.budget.used() <= LIMIT);
    }

    #[test]
    fn a_user_with_many_variants_pushes_out_its_own_documents_only() {
        let (first, second) = (Some(UserKey::for_tests(1)), Some(UserKey::for_tests(2)));
        let variant = |number: usize| {
            let request = Request::get("/openapi/v2");
            let accept = format!("application/json;q=0.{number}");
            let request = request.header("accept", accept).body(body::empty());
            let request = request.expect("a request");
            let info = RequestInfo::parse(request.method(), request.uri().path(), "");
            DocumentKey::of(&request, &info, |_, _| true)
                .expect("a document")
                .0
        };
        let memory = memory();
        let documents: Vec<_> = (0..4).map(|n| key(&format!("/apis/g{n}"))).collect();
        for document_key in &documents {
            memory.put(document_key.clone(), document(5 << 20), first);
        }
        // It stays the first user's.
        memory.put(documents[0].clone(), document(5 << 20), second);
        for number in 0..1_000 {
            memory.put(variant(number), document(5 << 20), second);
        }
        let kept = |key: &DocumentKey| memory.get(key, &None).is_some();
        assert!(documents.iter().all(kept));
        let variants = (0..1_000).filter(|number| kept(&variant(*number)));
        assert_eq!(
            variants.collect::<Vec<_>>(),
            (992..1_000).collect::<Vec<_>>()
        );
        // Many small variants push out none either.
        for number in 0..1_000 {
            memory.put(variant(number), document(1), second);
        }
        assert!(documents.iter().all(kept));
        // Alone, a user may have all.
        for number in 0..1_000 {
            memory.put(key(&format!("/apis/h{number}")), document(1), first);
        }
        assert!(kept(&key("/apis/h999")) && memory.budget.used() <= LIMIT);
    }

    #[test]
    fn an_acceptable_form_of_a_document_is_found() {
        let with = |url: &str, accept: &str| {
            let request = Request::get(url).header("accept", accept);
            let request = request.body(body::empty()).expect("a request");
            let info = RequestInfo::parse(request.method(), request.uri().path(), "");
            let found = DocumentKey::of(&request, &info, |_, _| true);
            found.expect("a document").0
        };
        let memory = memory();
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let sent = Document::new(&headers, Bytes::from_static(b"{}"), None);
        memory.put(with("/version", "application/json"), sent, None);
        let found = |url, accept| memory.acceptable(&with(url, accept), &None).is_some();
        assert!(found("/version", "application/json"));
        assert!(found("/version", "application/json, */*"));
        assert!(!found("/version", "application/vnd.kubernetes.protobuf"));
        assert!(!found("/apis", "application/json, */*"));
        let other = Some("A".to_owned());
        let key = with("/version", "*/*");
        assert!(memory.acceptable(&key, &other).is_none());
        assert!(memory.acceptable(&key, &None).is_some());
    }

    #[test]
    fn a_small_budget_is_kept() {
        const SMALL: usize = 2 << 20;
        let memory = Memory::new(Budget::for_tests(SMALL));
        assert_eq!(memory.max_document(), SMALL / DOCUMENT_SHARE);
        for number in 0..20 {
            let key = key(&format!("/apis/g{number}"));
            memory.put(key, document(SMALL / DOCUMENT_SHARE), None);
            assert!((1..=SMALL).contains(&memory.budget.used()));
        }
        assert!(memory.get(&key("/apis/g19"), &None).is_some());
    }

    #[test]
    fn a_replaced_document_takes_no_room() {
        let memory = memory();
        for bytes in [500, 700, 20] {
            memory.put(key("/version"), document(bytes), None);
            assert_eq!(memory.budget.used(), OVERHEAD + bytes + "/version".len());
        }
    }

    #[test]
    fn the_number_of_documents_is_bounded() {
        let memory = memory();
        for number in 0..=MAX_DOCUMENTS {
            memory.put(key(&format!("/apis/g{number}")), document(1), None);
        }
        assert!(memory.get(&key("/apis/g0"), &None).is_none());
        assert!(memory.get(&key("/apis/g1"), &None).is_some());
    }

    #[test]
    fn documents_that_were_not_asked_for_push_out_no_others() {
        let memory = memory();
        let keys: Vec<_> = (0..5).map(|n| key(&format!("/apis/g{n}/v1"))).collect();
        let room = keys.iter().map(|key| {
            let document = document(LIMIT / DOCUMENT_SHARE - 2 * OVERHEAD);
            memory.put_if_room(key.clone(), document)
        });
        assert_eq!(room.collect::<Vec<_>>(), [true, true, true, true, false]);
        // It replaces itself.
        assert!(memory.put_if_room(keys[0].clone(), document(1)));
        assert!(keys[..4].iter().all(|key| memory.get(key, &None).is_some()));
    }

    #[test]
    fn another_version_of_a_document_replaces_it() {
        let memory = memory();
        let schemas = key("/openapi/v3/api/v1");
        let version = |text: &str| Some(text.to_owned());
        for hash in ["A", "B"] {
            let document = Document::new(&HeaderMap::new(), Bytes::new(), version(hash));
            memory.put(schemas.clone(), document, None);
        }
        let known = [None, version("A"), version("B")];
        let known = known.map(|hash| memory.get(&schemas, &hash).is_some());
        assert_eq!(known, [false, false, true]);
    }

    #[test]
    fn a_document_keeps_no_header_of_its_request() {
        let mut headers = HeaderMap::new();
        for name in [
            "etag",
            "set-cookie",
            "audit-id",
            "x-kubernetes-pf-flowschema-uid",
        ] {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        let document = Document::new(&headers, Bytes::new(), None);
        let names: Vec<_> = document.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["etag"]);
    }
}
