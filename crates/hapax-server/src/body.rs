//! Bodies that have to be known whole.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::problem::{CUT_SHORT, Problem, TOO_LARGE};

/// How much more is read, and thrown away, of a body that is refused, and for how long. A client
/// that is cut off while it sends does not get to read why.
const LINGER: u64 = 16 * 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(2);

/// The whole body, if it is not too large and does not take too long.
pub(crate) async fn collected<B>(
    body: B,
    largest: usize,
    longest: Duration,
) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
{
    let mut body = pin!(body);
    let read = async {
        let mut whole = BytesMut::new();
        // What says that it is too large is not read at all.
        let mut fits = body.size_hint().lower() <= largest as u64;
        while fits && let Some(frame) = body.frame().await {
            let data = frame.map_err(|_| ())?.into_data().unwrap_or_default();
            fits = whole.len() + data.len() <= largest;
            if fits {
                whole.extend_from_slice(&data);
            }
        }
        Ok::<_, ()>(fits.then(|| whole.freeze()))
    };
    match tokio::time::timeout(longest, read).await {
        Ok(Ok(Some(whole))) => Ok(whole),
        Ok(Ok(None)) => {
            discard(body).await;
            let detail = format!("this request has at most {largest} bytes here");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, &TOO_LARGE, detail))
        }
        Ok(Err(())) => {
            let detail = "its body did not arrive in whole";
            Err(Problem::new(StatusCode::BAD_REQUEST, &CUT_SHORT, detail))
        }
        Err(_) => {
            let detail = "its body took too long to arrive";
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, &CUT_SHORT, detail))
        }
    }
}

/// Reads the rest of a body that nobody wants, within reason.
pub(crate) async fn discard<B: Body<Data = Bytes>>(body: B) {
    let mut body = pin!(body);
    if body.size_hint().lower() > LINGER {
        return;
    }
    let rest = async {
        let mut read = 0;
        while read <= LINGER
            && let Some(Ok(frame)) = body.frame().await
        {
            read += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
    };
    let _ = tokio::time::timeout(LINGER_TIME, rest).await;
}
