//! The marker: a text in each object that identifies the object's last write. A search finds the
//! marker in the bytes of a frame of any format, without parsing the object.

use memchr::memmem::Finder;

/// The numbers of hexadecimal digits of the marker's fields: object, sequence, number, scheduled.
const FIELDS: [usize; 4] = [6, 8, 8, 16];

/// Identifies the last write to an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The number of the object.
    pub(crate) object: u32,
    /// The number of the write among the writes to this object; the creation is 0.
    pub(crate) sequence: u32,
    /// The number of the write among all writes of the run, from 0, modulo 2^32.
    pub(crate) number: u32,
    /// The time when the write was due, in nanoseconds of the run's clock.
    pub(crate) scheduled: u64,
}

/// Finds the markers of one run.
pub(crate) struct MarkerFinder {
    prefix: Finder<'static>,
}

/// Returns the first characters of all markers of a run.
fn prefix(run: &str) -> String {
    format!("kubefan-load/{run}:")
}

impl Marker {
    pub(crate) fn to_text(self, run: &str) -> String {
        format!(
            "{}{:06x}.{:08x}.{:08x}.{:016x};",
            prefix(run),
            self.object,
            self.sequence,
            self.number,
            self.scheduled
        )
    }
}

impl MarkerFinder {
    pub(crate) fn new(run: &str) -> Self {
        Self {
            prefix: Finder::new(prefix(run).as_bytes()).into_owned(),
        }
    }

    /// Finds the first marker in `frame`; `None` if there is no complete marker.
    pub(crate) fn find(&self, frame: &[u8]) -> Option<Marker> {
        let at = self.prefix.find(frame)?;
        let mut rest = &frame[at + self.prefix.needle().len()..];
        let mut fields = [0_u64; FIELDS.len()];
        for (field, length) in fields.iter_mut().zip(FIELDS) {
            let (digits, after) = rest.split_at_checked(length)?;
            *field = hexadecimal(digits)?;
            rest = after.get(1..)?;
        }
        let [object, sequence, number, scheduled] = fields;
        Some(Marker {
            object: u32::try_from(object).ok()?,
            sequence: u32::try_from(sequence).ok()?,
            number: u32::try_from(number).ok()?,
            scheduled,
        })
    }
}

/// Reads up to 16 hexadecimal digits. The load test writes no sign and no upper case.
fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let mut value = 0;
    for digit in digits {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: Marker = Marker {
        object: 19,
        sequence: 70_000,
        number: u32::MAX,
        scheduled: 30_000_000_000,
    };

    #[test]
    fn a_marker_is_found_between_other_bytes() {
        let finder = MarkerFinder::new("0a1b2c3d");
        let text = MARKER.to_text("0a1b2c3d");
        let frame = format!("{{\"a\":\"kubefan-load/other:\",\"b\":\"{text}\"}}\n");
        assert_eq!(finder.find(frame.as_bytes()), Some(MARKER));
        assert_eq!(finder.find(text.as_bytes()), Some(MARKER));
        assert_eq!(MarkerFinder::new("ffffffff").find(frame.as_bytes()), None);
    }

    #[test]
    fn half_a_marker_is_not_found() {
        let finder = MarkerFinder::new("r");
        let text = MARKER.to_text("r");
        for end in 0..text.len() {
            assert_eq!(finder.find(&text.as_bytes()[..end]), None, "{end}");
        }
        for changed in ["00zz13", "+00013", "0000AF"] {
            let text = text.replace("000013", changed);
            assert_eq!(finder.find(text.as_bytes()), None, "{changed}");
        }
    }
}
