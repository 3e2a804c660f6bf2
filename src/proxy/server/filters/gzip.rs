//! Compresses large answers for clients that accept gzip, by the API server's rule.

use http::header;
use http_body::Body as _;
use kubefan_core::body;

use crate::server::answers::answer::Answer;
use crate::server::answers::outcome::Outcome;
use crate::server::deliver::{GZIP_THRESHOLD, GzipBody, client_accepts_gzip, with_gzip_headers};
use crate::server::request::Exchange;

/// Compresses answers of more than [`GZIP_THRESHOLD`] bytes. A watch is not compressed here,
/// because `Delivery::watch` decides about it. A forwarded answer retains the encoding that the API
/// server chose.
pub(super) async fn compress<F: Future<Output = Answer>>(
    exchange: Box<Exchange>,
    next: impl FnOnce(Box<Exchange>) -> F,
) -> Answer {
    let client_accepts = client_accepts_gzip(&exchange.request);
    let answer = next(exchange).await;
    if client_accepts {
        compressed(answer)
    } else {
        answer
    }
}

fn compressed(answer: Answer) -> Answer {
    // The API server has already chosen whether to compress a forwarded answer.
    let is_forwarded = matches!(answer.outcome, Outcome::Forwarded(_));
    let response = &answer.response;
    // A list may already be compressed, once for several clients.
    let is_encoded = response.headers().contains_key(header::CONTENT_ENCODING);
    // Indented JSON and watches have no exact length; the lower bound of a watch is zero.
    let length = response.body().size_hint().lower();
    if is_forwarded || is_encoded || length <= GZIP_THRESHOLD {
        return answer;
    }
    let compress = |body| body::boxed(GzipBody::new(body));
    Answer {
        has_compressor: true,
        ..answer.map(|response| with_gzip_headers(response.map(compress)))
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use crate::server::Reason;
    use crate::server::answers::outcome::Hit;

    #[test]
    fn only_large_answers_of_ours_are_compressed() {
        let forwarded = Outcome::forwarded(Reason::Consistent);
        let refused = Outcome::Rejected(None);
        let cache = Outcome::Cache(Hit::default());
        for (length, outcome, expected) in [
            (GZIP_THRESHOLD, refused, false),
            (GZIP_THRESHOLD + 1, refused, true),
            (GZIP_THRESHOLD + 1, cache, true),
            (GZIP_THRESHOLD + 1, forwarded, false),
        ] {
            let response = Response::new(body::full(vec![b'a'; length as usize]));
            let answer = compressed(Answer::from(response).with_outcome(outcome));
            let headers = answer.response.headers();
            let encoding = headers.get(header::CONTENT_ENCODING);
            assert_eq!(encoding.is_some(), expected, "{length} {outcome:?}");
            let vary = headers.get(header::VARY);
            assert_eq!(vary.is_some(), expected, "{length} {outcome:?}");
            assert_eq!(answer.has_compressor, expected, "{length} {outcome:?}");
        }
    }
}
