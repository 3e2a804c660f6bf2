//! Members: complete gzip texts. A compressed watch is a sequence of them, one for each chunk of
//! its body, as at the API server.
//!
//! So the state of the compressor is not kept between two chunks: a thread has one for all watches.
//! Watches that send the same chunk share its member, and a body that ends after any member is
//! complete.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::io::Write;
use std::sync::Arc;
use std::sync::Weak;

use bytes::Bytes;
use flate2::Compression;
use flate2::Crc;
use flate2::write::DeflateEncoder;
use parking_lot::Mutex;

use crate::ledger::Account;
use crate::ledger::Charge;
use crate::ledger::Kind;
use crate::ledger::Short;

use super::compress::HEADER;
use super::compress::LEVEL;
use crate::server::deliver::watch_body::FREE_FRAME;

/// Largest capacity, in bytes, of the buffer that a thread keeps for its next member.
const KEPT_CAPACITY: usize = 64 << 10;
/// Number of members that a thread keeps: watches of several formats may get the same event by
/// turns.
const KEPT_MEMBERS: usize = 4;
/// Upper limit of the bytes of the texts whose members a thread keeps. The last one is always kept.
const KEPT_TEXTS: usize = 256 << 10;

/// Compressed bytes that several watches send. They are charged once, to the first of these
/// watches, for as long as one of them sends the bytes.
#[derive(Clone)]
pub(super) struct SharedMember {
    gzip: Bytes,
    charge: Arc<Mutex<Weak<Charge>>>,
}

/// Bytes that own their charge.
struct Charged {
    gzip: Bytes,
    _charge: Arc<Charge>,
}

/// Compresses one member after another.
struct MemberWriter {
    deflate: DeflateEncoder<Vec<u8>>,
    /// An empty buffer for the next member.
    spare: Vec<u8>,
}

/// The last members of a thread.
#[derive(Default)]
struct LastMembers {
    /// The texts and their members, the newest last. Because the texts are kept, no other bytes can
    /// have their addresses.
    members: VecDeque<(Bytes, SharedMember)>,
}

thread_local! {
    static WRITER: RefCell<Option<MemberWriter>> = const { RefCell::new(None) };
    static LAST: RefCell<LastMembers> = RefCell::default();
}

/// The member whose text is `parts`.
///
/// # Errors
///
/// If the compressor reports an internal error.
pub(super) fn compressed(parts: &[Bytes]) -> io::Result<SharedMember> {
    let mut writer = WRITER.take().unwrap_or_else(MemberWriter::new);
    let gzip = writer.member(parts)?;
    // After an error the writer is dropped, because its state is unknown.
    WRITER.set(Some(writer));
    Ok(SharedMember {
        gzip,
        charge: Arc::default(),
    })
}

/// The member whose text is `text`, and true if it was compressed now. If this thread has
/// compressed the same slice of memory recently, it returns the same member.
///
/// # Errors
///
/// If the compressor reports an internal error.
pub(super) fn compressed_once(text: &Bytes) -> io::Result<(SharedMember, bool)> {
    if let Some(member) = LAST.with_borrow(|last| last.find(text)) {
        return Ok((member, false));
    }
    let member = compressed(std::slice::from_ref(text))?;
    LAST.with_borrow_mut(|last| last.keep(text.clone(), member.clone()));
    Ok((member, true))
}

// === impl SharedMember ===

impl SharedMember {
    /// The compressed bytes. If there are many, they are charged until they were sent: to
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
            None => Arc::new(account.charge(Kind::Watch, gzip.len() as u64)?),
        };
        *last = Arc::downgrade(&charge);
        let _charge = charge;
        Ok(Bytes::from_owner(Charged { gzip, _charge }))
    }

    /// The number of compressed bytes.
    pub(super) fn len(&self) -> usize {
        self.gzip.len()
    }
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.gzip
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

// === impl LastMembers ===

impl LastMembers {
    fn find(&self, text: &Bytes) -> Option<SharedMember> {
        let address = |text: &Bytes| (text.as_ptr(), text.len());
        let wanted = address(text);
        let mut newest_first = self.members.iter().rev();
        let found = newest_first.find(|(text, _)| address(text) == wanted);
        found.map(|(_, member)| member.clone())
    }

    fn keep(&mut self, text: Bytes, member: SharedMember) {
        self.members.push_back((text, member));
        let length = |members: &VecDeque<(Bytes, _)>| {
            let lengths = members.iter().map(|(text, _)| text.len());
            lengths.sum::<usize>()
        };
        while self.members.len() > KEPT_MEMBERS
            || (self.members.len() > 1 && length(&self.members) > KEPT_TEXTS)
        {
            self.members.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::Decompress;
    use flate2::FlushDecompress;
    use flate2::read::MultiGzDecoder;

    use super::*;
    use crate::ledger::Ledger;
    use crate::ledger::Limits;

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
        // A long text leaves no room for others.
        let long = noise(KEPT_TEXTS + 1);
        assert!(compressed_once(&long).expect("no failure").1);
        assert!(!compressed_once(&long).expect("no failure").1);
        assert!(compressed_once(&texts[2]).expect("no failure").1);
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
