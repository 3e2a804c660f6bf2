//! Bytes that own their charge.

use bytes::Bytes;

struct ChargedBytes<C> {
    bytes: Bytes,
    _charge: C,
}

/// Returns `bytes` that hold `charge` until their last clone is dropped. `charge` is a
/// [`Charge`](super::Charge), or a shared one.
pub fn charged<C: Send + 'static>(bytes: Bytes, charge: C) -> Bytes {
    Bytes::from_owner(ChargedBytes {
        bytes,
        _charge: charge,
    })
}

impl<C> AsRef<[u8]> for ChargedBytes<C> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
