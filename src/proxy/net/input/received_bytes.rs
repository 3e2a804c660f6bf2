//! Measures the unfinished head and the body in the bytes that an HTTP/1.1 client sends.
//!
//! The HTTP library reads the socket for a head until the head is complete. It reads for a body
//! only when it has passed on all earlier bytes. So the number of bytes that the library holds can
//! be calculated without a look at the bytes.

use http::Request;

/// The read buffer that a connection has in any case.
const USUAL_BUFFER: u64 = 16 << 10;

/// How much an HTTP/1.1 connection has received, and how much of this was taken.
#[derive(Debug, Default)]
pub(super) struct ReceivedBytes {
    /// Bytes that the HTTP library holds.
    held: u64,
    /// The most bytes that the library has held at a time, if they are more than usual: the library
    /// retains this memory for later reads.
    most: u64,
    /// Bytes of the last read.
    last_read: u64,
    /// The number of bodies and answers that have not ended. If there are none, the library reads a
    /// head.
    in_progress: usize,
    /// True if the connection has ended, or is not HTTP any more.
    has_ended: bool,
}

// === impl ReceivedBytes ===

impl ReceivedBytes {
    /// Returns the bytes that are held for an unfinished head, and those that are held for a body
    /// and what follows it.
    pub(super) fn held(&self) -> (u64, u64) {
        match (self.has_ended, self.in_progress) {
            (true, _) => (0, 0),
            (false, 0) => (self.held.max(self.most), 0),
            (false, _) => (self.most.saturating_sub(self.held), self.held),
        }
    }

    /// Notes that the HTTP library has read `count` bytes.
    pub(super) fn read(&mut self, count: u64) {
        self.last_read = count;
        self.held = match self.in_progress {
            0 => self.held + count,
            _ => count,
        };
        if self.held > USUAL_BUFFER {
            self.most = self.most.max(self.held);
        }
    }

    /// Begins a request with a head of `head` bytes. The head's last byte was in the last read,
    /// unless the client has sent several requests together.
    pub(super) fn begin_request(&mut self, head: u64) {
        self.held = match self.in_progress {
            0 => self.held.saturating_sub(head).min(self.last_read),
            _ => self.held.saturating_sub(head),
        };
    }

    /// Notes that `count` bytes of a request's body were taken.
    pub(super) fn take(&mut self, count: u64) {
        self.held = self.held.saturating_sub(count);
    }

    /// Begins the body of a request, or an answer.
    pub(super) fn begin(&mut self) {
        self.in_progress += 1;
    }

    /// Ends the body of a request, or an answer.
    pub(super) fn end(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
    }

    /// Notes that the library has a new buffer.
    pub(super) fn renew_buffer(&mut self) {
        self.most = 0;
    }

    /// Notes that the connection has ended, or is not HTTP any more.
    pub(super) fn end_connection(&mut self) {
        self.has_ended = true;
    }
}

/// Returns the length of the head of `request` in the form that common clients send.
pub(super) fn length_of_head<B>(request: &Request<B>) -> u64 {
    /// Spaces and the end of the line: `GET /path HTTP/1.1`.
    const REQUEST_LINE: usize = " ".len() + " HTTP/1.1\r\n".len();
    const SEPARATORS: usize = ": ".len() + "\r\n".len();
    const END: usize = "\r\n".len();
    let path = request.uri().path_and_query();
    let path = path.map_or(0, |path| path.as_str().len());
    let line = request.method().as_str().len() + path + REQUEST_LINE;
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + SEPARATORS);
    (line + headers.sum::<usize>() + END) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Step {
        Read(u64),
        Request(u64),
        Take(u64),
        Begin,
        End,
        RenewBuffer,
        EndConnection,
    }

    #[test]
    fn what_the_http_library_holds_is_known_from_its_reads() {
        use Step::*;
        // Steps, and after each step, the bytes that are held of a head and of a body.
        let rows: [&[(Step, u64, u64)]; 7] = [
            // A head in two reads, and the next one behind it.
            &[
                (Read(100), 100, 0),
                (Read(50), 150, 0),
                (Request(150), 0, 0),
                (Begin, 0, 0),
                (End, 0, 0),
                (Read(70), 70, 0),
            ],
            // A body with a first part that arrives with the head.
            &[
                (Read(100), 100, 0),
                (Request(60), 40, 0),
                (Begin, 0, 40),
                (Begin, 0, 40),
                (Take(40), 0, 0),
                (Read(1_000), 0, 1_000),
                (Take(400), 0, 600),
                (Take(600), 0, 0),
                (End, 0, 0),
                (End, 0, 0),
            ],
            // The length of a head that is written in another way is not exact.
            &[
                (Read(10_000), 10_000, 0),
                (Read(200), 10_200, 0),
                (Request(7_000), 200, 0),
                (Begin, 0, 200),
                // The library reads only if it holds nothing.
                (Read(10), 0, 10),
                (Take(20), 0, 0),
            ],
            // The library retains the memory of a long head for later reads.
            &[
                (Read(16_384), 16_384, 0),
                (Read(100_000), 116_384, 0),
                (Request(116_384), 116_384, 0),
                (Begin, 116_384, 0),
                (Read(50_000), 66_384, 50_000),
                (Take(50_000), 116_384, 0),
                (End, 116_384, 0),
                (Read(70), 116_384, 0),
                (EndConnection, 0, 0),
            ],
            // It gives the memory back if an answer is taken from it.
            &[
                (Read(100_000), 100_000, 0),
                (Request(100_000), 100_000, 0),
                (Begin, 100_000, 0),
                (Read(70), 99_930, 70),
                (End, 100_000, 0),
                (RenewBuffer, 70, 0),
                (Read(30), 100, 0),
            ],
            // Two requests and a half in one read.
            &[
                (Read(250), 250, 0),
                (Request(100), 150, 0),
                (Begin, 0, 150),
                (End, 150, 0),
                (Request(100), 50, 0),
                (Begin, 0, 50),
                (End, 50, 0),
                (Read(50), 100, 0),
                (Request(100), 0, 0),
            ],
            &[
                (Read(250), 250, 0),
                (Request(200), 50, 0),
                (Begin, 0, 50),
                (EndConnection, 0, 0),
                (Read(1_000), 0, 0),
            ],
        ];
        for (index, row) in rows.iter().enumerate() {
            let mut received = ReceivedBytes::default();
            for (number, (step, head, body)) in row.iter().enumerate() {
                match step {
                    Read(count) => received.read(*count),
                    Request(head) => received.begin_request(*head),
                    Take(count) => received.take(*count),
                    Begin => received.begin(),
                    End => received.end(),
                    RenewBuffer => received.renew_buffer(),
                    EndConnection => received.end_connection(),
                }
                assert_eq!(
                    received.held(),
                    (*head, *body),
                    "row {index}, step {number}"
                );
            }
        }
    }

    #[test]
    fn the_length_of_a_head_is_that_of_common_clients() {
        let head =
            "POST /api/v1/pods?limit=5 HTTP/1.1\r\nhost: 127.0.0.1:80\r\naccept: */*\r\n\r\n";
        let request = Request::post("http://127.0.0.1:80/api/v1/pods?limit=5")
            .header("host", "127.0.0.1:80")
            .header("accept", "*/*")
            .body(())
            .expect("a request");
        assert_eq!(length_of_head(&request), head.len() as u64);
    }
}
