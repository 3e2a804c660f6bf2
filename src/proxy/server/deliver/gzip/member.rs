//! Members: complete gzip texts. A compressed watch is a sequence of members, one for each chunk of
//! its body, as at the API server.
//!
//! The compressor therefore has no state between two chunks: one compressor per thread serves all
//! watches. Watches that send the same chunk share its member, and a body that ends after any
//! member is complete.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::io::Write;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use kubefan_core::concurrency::CoopBudget;
use parking_lot::Mutex;

use super::compress::{BYTE_UNITS, HEADER, LEVEL};
use crate::ledger;
use crate::ledger::{Account, Charge, MemoryKind, Short};
use crate::server::deliver::watch_body::FREE_FRAME;

/// Largest capacity, in bytes, of the buffer that a thread reuses for its next member.
const KEPT_CAPACITY: usize = 64 << 10;
/// Number of members that a thread remembers: watches of several formats may get an event by turns.
const KEPT_MEMBERS: usize = 4;
/// Upper limit of the bytes of the remembered texts of a thread. They are not charged, because this
/// is little for a thread.
const KEPT_TEXTS: usize = 256 << 10;
/// Length, in bytes, of the pieces in which a long text is compressed.
const PIECE: usize = 64 << 10;
/// Longest text, in bytes, that is compressed at once.
pub(super) const LONGEST_AT_ONCE: usize = 2 * PIECE;

/// Compressed bytes that several watches send. They are charged once, to the first of these
/// watches, until all of them have sent the bytes.
#[derive(Clone)]
pub(super) struct SharedMember {
    gzip: Bytes,
    charge: Arc<Mutex<Weak<Charge>>>,
}

/// The compression of a long text. Each watch that waits for the result advances it. When no watch
/// waits any more, the work is dropped.
pub(super) type CompressingText = Shared<BoxFuture<'static, Result<LongMember, Arc<io::Error>>>>;

/// A long text and its members.
#[derive(Clone)]
pub(super) struct LongMember {
    pub(super) member: SharedMember,
    /// Held so that no other bytes can have its address.
    _text: Bytes,
}

/// A text that is compressed in pieces, so that other tasks can run in between. Each piece becomes
/// a member.
pub(super) struct Members {
    /// What is left of the text.
    parts: VecDeque<Bytes>,
    left: usize,
    gzip: Vec<Bytes>,
}

/// Compresses one member after another.
struct MemberWriter {
    deflate: DeflateEncoder<Vec<u8>>,
    /// An empty buffer for the next member.
    spare: Vec<u8>,
}

/// The last texts of a thread and their members, the newest last. Because the texts are held, no
/// other bytes can have their addresses.
type LastMembers = VecDeque<(Bytes, SharedMember)>;

/// The last long text of a thread. Its compression can be joined while a watch waits for it.
struct LastLong {
    address: (usize, usize),
    compressing: WeakShared<BoxFuture<'static, Result<LongMember, Arc<io::Error>>>>,
}

thread_local! {
    static WRITER: RefCell<Option<MemberWriter>> = const { RefCell::new(None) };
    static LAST: RefCell<LastMembers> = RefCell::default();
    static LAST_LONG: RefCell<Option<LastLong>> = const { RefCell::new(None) };
}

/// Compresses `parts` into one member.
///
/// # Errors
///
/// If the compressor reports an internal error.
pub(super) fn compressed(parts: &[Bytes]) -> io::Result<SharedMember> {
    Ok(SharedMember::new(gzip(parts)?))
}

fn gzip(parts: &[Bytes]) -> io::Result<Bytes> {
    let mut writer = WRITER.take().unwrap_or_else(MemberWriter::new);
    let gzip = writer.member(parts)?;
    // After an error the writer is dropped, because its state is unknown.
    WRITER.set(Some(writer));
    Ok(gzip)
}

/// Returns the member of `text`, and true if it was compressed now. If this thread has recently
/// compressed the slice at this address, the member is that of the earlier call. `text` has at most
/// [`LONGEST_AT_ONCE`] bytes.
///
/// # Errors
///
/// If the compressor reports an internal error.
pub(super) fn compressed_once(text: &Bytes) -> io::Result<(SharedMember, bool)> {
    if let Some(member) = LAST.with_borrow(|last| find(last, text)) {
        return Ok((member, false));
    }
    let member = compressed(std::slice::from_ref(text))?;
    LAST.with_borrow_mut(|last| keep(last, text.clone(), member.clone()));
    Ok((member, true))
}

/// Returns the compression of the long `text`. Watches of this thread that need the text
/// concurrently share the compression, which yields to other tasks after a certain amount of work.
pub(super) fn compressing(text: Bytes) -> CompressingText {
    let address = (text.as_ptr().addr(), text.len());
    LAST_LONG.with_borrow_mut(|last| {
        let found = last.as_ref().filter(|last| last.address == address);
        if let Some(found) = found.and_then(|last| last.compressing.upgrade()) {
            return found;
        }
        let new = compressed_in_pieces(text).boxed().shared();
        *last = new.downgrade().map(|compressing| LastLong {
            address,
            compressing,
        });
        new
    })
}

async fn compressed_in_pieces(text: Bytes) -> Result<LongMember, Arc<io::Error>> {
    let mut members = Members::of(vec![text.clone()]);
    let mut budget = CoopBudget::new();
    while !members.is_complete() {
        budget.proceed().await;
        budget.charge(members.compress_next().map_err(Arc::new)? * BYTE_UNITS);
    }
    let member = members.finish();
    Ok(LongMember {
        member,
        _text: text,
    })
}

// === impl Members ===

impl Members {
    /// Creates the members of the text `parts`; nothing of it is compressed yet.
    pub(super) fn of(parts: Vec<Bytes>) -> Self {
        Self {
            left: parts.iter().map(Bytes::len).sum(),
            parts: parts.into(),
            gzip: Vec::new(),
        }
    }

    /// Returns true if all of the text is compressed.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Compresses the next piece, and returns the length that it had uncompressed.
    ///
    /// # Errors
    ///
    /// If the compressor reports an internal error.
    pub(super) fn compress_next(&mut self) -> io::Result<usize> {
        let length = match self.left {
            short @ ..=LONGEST_AT_ONCE => short,
            _ => PIECE,
        };
        self.left -= length;
        let mut room = length;
        let mut piece = Vec::new();
        while room > 0 {
            let mut part = self.parts.pop_front().unwrap_or_default();
            debug_assert!(!self.parts.is_empty() || part.len() >= room);
            if part.len() > room {
                self.parts.push_front(part.split_off(room));
            }
            room -= part.len();
            piece.push(part);
        }
        self.gzip.push(gzip(&piece)?);
        Ok(length)
    }

    /// Returns the members of all pieces, joined to one sequence.
    pub(super) fn finish(mut self) -> SharedMember {
        SharedMember::new(match self.gzip.len() {
            1 => self.gzip.swap_remove(0),
            _ => self.gzip.concat().into(),
        })
    }
}

// === impl SharedMember ===

impl SharedMember {
    fn new(gzip: Bytes) -> Self {
        let charge = Arc::default();
        Self { gzip, charge }
    }

    /// Returns the compressed bytes. If there are many, they are charged until they were sent: to
    /// `account`, unless another watch is sending them too.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub(super) fn charged(&self, account: Option<&Arc<Account>>) -> Result<Bytes, Short> {
        let gzip = self.gzip.clone();
        let Some(account) = account.filter(|_| gzip.len() > FREE_FRAME) else {
            return Ok(gzip);
        };
        let mut last = self.charge.lock();
        let charge = match last.upgrade() {
            Some(charge) => charge,
            None => Arc::new(account.charge(MemoryKind::Watch, gzip.len() as u64)?),
        };
        *last = Arc::downgrade(&charge);
        Ok(ledger::charged(gzip, charge))
    }

    /// Returns the number of compressed bytes.
    pub(super) fn len(&self) -> usize {
        self.gzip.len()
    }
}

// === impl MemberWriter ===

impl MemberWriter {
    fn new() -> Self {
        Self {
            deflate: DeflateEncoder::new(HEADER.to_vec(), Compression::new(LEVEL)),
            spare: Vec::new(),
        }
    }

    fn member(&mut self, parts: &[Bytes]) -> io::Result<Bytes> {
        let mut crc = Crc::new();
        for part in parts {
            crc.update(part);
            self.deflate.write_all(part)?;
        }
        // Some readers, such as Go's, return the text that precedes the end of a member only after
        // they have read the header of the next one, but what precedes a flush at once.
        self.deflate.flush()?;
        let mut next = std::mem::take(&mut self.spare);
        next.extend_from_slice(&HEADER);
        let mut text = self.deflate.reset(next)?;
        text.extend_from_slice(&crc.sum().to_le_bytes());
        text.extend_from_slice(&crc.amount().to_le_bytes());
        let member = Bytes::copy_from_slice(&text);
        if text.capacity() <= KEPT_CAPACITY {
            text.clear();
            self.spare = text;
        }
        Ok(member)
    }
}

fn find(last: &LastMembers, text: &Bytes) -> Option<SharedMember> {
    let address = |text: &Bytes| (text.as_ptr(), text.len());
    let wanted = address(text);
    let mut newest_first = last.iter().rev();
    let found = newest_first.find(|(text, _)| address(text) == wanted);
    found.map(|(_, member)| member.clone())
}

/// Remembers a member, and drops the oldest ones until the limits are met.
fn keep(last: &mut LastMembers, text: Bytes, member: SharedMember) {
    last.push_back((text, member));
    let length = |last: &LastMembers| last.iter().map(|(text, _)| text.len()).sum::<usize>();
    while last.len() > KEPT_MEMBERS || length(last) > KEPT_TEXTS {
        last.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::task::{Context, Poll, Waker};

    use flate2::read::MultiGzDecoder;
    use flate2::{Decompress, FlushDecompress};

    use super::*;
    use crate::ledger::{Ledger, Limits};

    fn decoded(gzip: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        let read = MultiGzDecoder::new(gzip).read_to_end(&mut text);
        read.expect("complete members");
        text
    }

    /// Bytes that can't be compressed.
    fn noise(length: usize) -> Bytes {
        let mut state = 7_u32;
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        bytes.take(length).collect::<Vec<_>>().into()
    }

    #[test]
    fn members_are_complete_in_any_sequence() {
        let texts = [
            vec![],
            vec![Bytes::from_static(b"x")],
            vec![noise(300_000), Bytes::new(), noise(7)],
            vec![Bytes::from(vec![b'a'; 1 << 20])],
            (0..500_usize).map(noise).collect(),
        ];
        let mut sent = Vec::new();
        let mut expected = Vec::new();
        for text in texts.iter().chain(texts.iter().rev()) {
            let member = compressed(text).expect("no failure");
            sent.extend_from_slice(&member.charged(None).expect("no ledger"));
            expected.extend_from_slice(&text.concat());
            assert!(decoded(&sent) == expected, "{} bytes", expected.len());
        }
    }

    #[test]
    fn a_reader_has_the_text_before_the_end_of_the_member() {
        for text in [noise(50_000), Bytes::from(vec![b'a'; 50_000])] {
            let member = compressed(std::slice::from_ref(&text)).expect("no failure");
            let gzip = member.charged(None).expect("no ledger");
            // The member ends with an empty deflate block (two bytes), the checksum and the length.
            let deflate = &gzip[HEADER.len()..gzip.len() - 10];
            let mut early = Vec::with_capacity(text.len() + 1);
            let inflated =
                Decompress::new(false).decompress_vec(deflate, &mut early, FlushDecompress::Sync);
            inflated.expect("deflate");
            assert!(early == text, "{} of {} bytes", early.len(), text.len());
        }
    }

    #[test]
    fn a_thread_compresses_the_same_slice_once() {
        let texts = [noise(100), noise(200), noise(300)];
        for round in 0..2 {
            for text in &texts {
                let (_, was_made) = compressed_once(text).expect("no failure");
                assert_eq!(was_made, round == 0);
            }
        }
        let equal = Bytes::copy_from_slice(&texts[0]);
        assert!(compressed_once(&equal).expect("no failure").1);
        assert!(compressed_once(&texts[0].slice(1..)).expect("no failure").1);
        // Long texts leave no room for others, and a text that is too long is not remembered.
        let long = [noise(LONGEST_AT_ONCE), noise(LONGEST_AT_ONCE)];
        for round in 0..2 {
            for text in &long {
                assert_eq!(compressed_once(text).expect("no failure").1, round == 0);
            }
        }
        assert!(compressed_once(&texts[2]).expect("no failure").1);
        let too_long = noise(KEPT_TEXTS + 1);
        for _ in 0..2 {
            assert!(compressed_once(&too_long).expect("no failure").1);
        }
        assert_eq!(LAST.with_borrow(|last| last.len()), 0);
    }

    #[test]
    fn watches_of_a_thread_share_the_work_on_a_long_text() {
        let text = noise(10 * PIECE);
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = compressing(text.clone());
        assert!(first.poll_unpin(&mut cx).is_pending());
        let mut second = compressing(text.clone());
        let third = compressing(text.clone());
        assert!(second.ptr_eq(&first) && third.ptr_eq(&first));
        // The work does not depend on the watch that began it.
        drop(first);
        let mut polls = 1;
        let compressed = loop {
            polls += 1;
            match second.poll_unpin(&mut cx) {
                Poll::Ready(compressed) => break compressed.expect("no failure").member,
                Poll::Pending => {}
            }
        };
        assert_eq!(polls, 9, "the last two pieces are one");
        let gzip = compressed.charged(None).expect("no ledger");
        assert!(decoded(&gzip) == text);
        // The result is shared as long as a watch waits for it.
        assert!(compressing(text.clone()).ptr_eq(&third));
        assert!(third.peek().is_some());
        drop(third);
        assert!(compressing(text).peek().is_none());
    }

    #[test]
    fn a_long_text_is_compressed_in_pieces() {
        for (parts, pieces) in [
            (vec![noise(1), Bytes::new(), noise(7)], 1),
            (vec![noise(LONGEST_AT_ONCE)], 1),
            (vec![noise(LONGEST_AT_ONCE + 1)], 2),
            (vec![noise(10), noise(10 * PIECE), noise(20)], 10),
            ((0..2_000_usize).map(noise).collect(), 30),
        ] {
            let text = parts.concat();
            let mut members = Members::of(parts);
            let mut compressed = 0;
            for _ in 0..pieces {
                assert!(!members.is_complete());
                let length = members.compress_next().expect("no failure");
                assert!((1..=LONGEST_AT_ONCE).contains(&length));
                compressed += length;
            }
            assert!(members.is_complete());
            assert_eq!(compressed, text.len());
            let gzip = members.finish().charged(None).expect("no ledger");
            assert!(decoded(&gzip) == text, "{} bytes", text.len());
        }
    }

    #[test]
    fn a_long_member_is_charged_once_while_it_is_sent() {
        let limits = Limits {
            connection_memory: 100 << 10,
            ..Limits::new(Some(1 << 30), None, 0)
        };
        let ledger = Ledger::new(limits);
        let (one, other) = (ledger.open_account(), ledger.open_account());
        let charged = || {
            let usage = ledger.usage();
            let watches = usage.iter().find(|(kind, _)| *kind == "watch");
            watches.map_or(0, |(_, bytes)| *bytes)
        };
        let short = compressed(&[noise(FREE_FRAME / 2)]).expect("no failure");
        let free = short.charged(Some(&one));
        assert_eq!((free.is_ok(), charged()), (true, 0));
        let long = compressed(&[noise(50_000)]).expect("no failure");
        let first = long.charged(Some(&one)).expect("memory");
        let second = long.charged(Some(&other)).expect("memory");
        assert_eq!(charged(), long.len() as u64);
        drop(first);
        assert_eq!(charged(), long.len() as u64);
        drop(second);
        assert_eq!(charged(), 0);
        let too_long = compressed(&[noise(200_000)]).expect("no failure");
        assert_eq!(too_long.charged(Some(&one)), Err(Short::Connection));
    }
}
