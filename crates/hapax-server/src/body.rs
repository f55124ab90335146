//! Request bodies that are read whole.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::budget::{BODIES, Share};
use crate::problem::{CUT_SHORT, Problem, TOO_LARGE, TOO_MANY};

/// How many more bytes of a refused body are read and discarded, and for how long. A client that is
/// cut off while it sends cannot read why.
const LINGER: u64 = 16 * 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(2);

/// The whole body, if it is within the limits of size and time, and the budget has room for it.
pub(crate) async fn collected<B>(
    body: B,
    largest: usize,
    longest: Duration,
) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
{
    let mut body = pin!(body);
    match tokio::time::timeout(longest, read(body.as_mut(), largest)).await {
        Ok(Ok(whole)) => Ok(whole),
        Ok(Err(BodyError::TooLarge)) => {
            discard(body).await;
            let detail = format!("this request has at most {largest} bytes here");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, &TOO_LARGE, detail))
        }
        Ok(Err(BodyError::NoRoom)) => {
            discard(body).await;
            let detail = "the bodies of other requests take all the memory there is for them";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, &TOO_MANY, detail))
        }
        Ok(Err(BodyError::BrokeOff)) => {
            let detail = "its body did not arrive in whole";
            Err(Problem::new(StatusCode::BAD_REQUEST, &CUT_SHORT, detail))
        }
        Err(_) => {
            let detail = "its body took too long to arrive";
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, &CUT_SHORT, detail))
        }
    }
}

/// Why a body was not read to its end.
enum BodyError {
    TooLarge,
    NoRoom,
    BrokeOff,
}

async fn read<B>(mut body: Pin<&mut B>, largest: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
{
    // A body that declares too large a size is refused before any of it is buffered.
    if body.size_hint().lower() > largest as u64 {
        return Err(BodyError::TooLarge);
    }
    let mut whole = BudgetedBytes { bytes: Vec::new(), share: BODIES.share() };
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|_| BodyError::BrokeOff)?.into_data().unwrap_or_default();
        let length = whole.bytes.len() + data.len();
        if length > largest {
            return Err(BodyError::TooLarge);
        }
        // A body in one frame is in memory already, so it takes no share of the budget.
        if whole.bytes.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        if length > whole.bytes.capacity() {
            let room = length.max(2 * whole.bytes.capacity()).min(largest);
            if !whole.share.grow(room) {
                return Err(BodyError::NoRoom);
            }
            whole.bytes.reserve_exact(room - whole.bytes.len());
        }
        whole.bytes.extend_from_slice(&data);
    }
    Ok(Bytes::from_owner(whole))
}

/// A body that keeps its share of the budget as long as any part of it is in use.
struct BudgetedBytes {
    bytes: Vec<u8>,
    share: Share,
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads and discards the rest of a refused body, up to a limit of size and time.
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
