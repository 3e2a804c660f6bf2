//! Bytes in pieces that are copied fast.

use std::io::IoSlice;

/// The largest piece, in bytes. glibc before 2.40 copies more than about 2 KiB at once with
/// `rep movsb`, on some CPUs. Those of AMD's Zen 3 and 4 are then up to twenty times slower, depending
/// on the addresses (<https://sourceware.org/bugzilla/show_bug.cgi?id=30994>).
pub(crate) const PIECE: usize = 2 << 10;

/// Adds `bytes` to the end of `buffer`.
pub(crate) fn append(buffer: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(PIECE) {
        buffer.extend_from_slice(piece);
    }
}

/// Calls `write` with pieces of `data`, in their order, for a writer that copies each of them. These
/// are at most `N` pieces, so the end of `data` may be missing.
pub(crate) fn with_pieces<const N: usize, T>(
    data: &[IoSlice<'_>],
    write: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> T {
    let mut pieces = [IoSlice::new(&[]); N];
    let mut count = 0;
    let cut = data.iter().flat_map(|slice| slice.chunks(PIECE));
    for (place, piece) in pieces.iter_mut().zip(cut) {
        *place = IoSlice::new(piece);
        count += 1;
    }
    write(&pieces[..count])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns bytes of which no two pieces are equal.
    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|place| (place % 251) as u8).collect()
    }

    #[test]
    fn pieces_are_all_bytes_in_their_order() {
        let bytes = bytes(3 * PIECE + 1);
        let mut buffer = vec![7];
        append(&mut buffer, &bytes);
        assert_eq!(buffer[1..], bytes);
        for length in [0, 1, PIECE, PIECE + 1, 3 * PIECE + 1] {
            let (first, second) = bytes[..length].split_at(length / 3);
            let data = [first, &[], second].map(IoSlice::new);
            with_pieces::<8, _>(&data, |pieces| {
                let are_short = pieces
                    .iter()
                    .all(|piece| (1..=PIECE).contains(&piece.len()));
                assert!(are_short, "{length}");
                let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
                assert_eq!(whole, bytes[..length]);
            });
        }
    }

    #[test]
    fn the_pieces_that_do_not_fit_are_the_last() {
        let bytes = bytes(10 * PIECE);
        with_pieces::<4, _>(&[IoSlice::new(&bytes)], |pieces| {
            let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            assert_eq!(whole, bytes[..4 * PIECE]);
        });
    }
}
