//! Bytes in pieces that are copied fast.

use std::io::IoSlice;

/// The largest piece, in bytes. glibc before 2.40 copies more bytes than 2,112 at once with
/// `rep movsb`. Some CPUs of AMD then need up to twenty times as long if the destination is not
/// aligned (<https://sourceware.org/bugzilla/show_bug.cgi?id=30994>).
const PIECE: usize = 2 << 10;

/// Adds `bytes` to the end of `buffer`.
pub(in crate::net) fn append(buffer: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(PIECE) {
        buffer.extend_from_slice(piece);
    }
}

/// Calls `write` with pieces of `data`, in their order, for a writer that copies each of them. These
/// are at most `N` pieces, so the end of `data` may be missing.
pub(in crate::net) fn with_pieces<const N: usize, T>(
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

    #[test]
    fn pieces_are_all_bytes_in_their_order() {
        let bytes: Vec<u8> = (0..3 * PIECE + 1).map(|byte| byte as u8).collect();
        let mut buffer = vec![7];
        append(&mut buffer, &bytes);
        assert_eq!(buffer[1..], bytes);
        for length in [0, 1, PIECE, PIECE + 1, 3 * PIECE + 1] {
            let (first, second) = bytes[..length].split_at(length / 3);
            let data = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second)];
            with_pieces::<8, _>(&data, |pieces| {
                assert!(
                    pieces
                        .iter()
                        .all(|piece| (1..=PIECE).contains(&piece.len()))
                );
                let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
                assert_eq!(whole, bytes[..length]);
            });
        }
    }

    #[test]
    fn there_are_not_more_pieces_than_fit() {
        let bytes = vec![1; 10 * PIECE];
        with_pieces::<4, _>(&[IoSlice::new(&bytes)], |pieces| {
            let lengths: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
            assert_eq!(lengths, [PIECE; 4]);
        });
    }
}
