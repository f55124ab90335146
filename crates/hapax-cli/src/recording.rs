//! The output of a program: recorded while it runs, head and tail, and played back.

use std::collections::VecDeque;
use std::io::Write as _;

use data_encoding::BASE64;
use hapax::Outcome;
use serde_json::{Map, Value, json};

/// How much of the beginning is kept, and how much of the end.
const KEEP: usize = 256 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Err => "stderr",
        }
    }

    /// Shows bytes. A reader that went away does not stop the program.
    pub(crate) fn write(self, bytes: &[u8]) {
        let _ = match self {
            Self::Out => {
                std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush())
            }
            Self::Err => std::io::stderr().write_all(bytes),
        };
    }
}

/// Output in the order in which it came.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Recording {
    head: Vec<(Stream, Vec<u8>)>,
    head_size: usize,
    omitted: usize,
    tail: VecDeque<(Stream, Vec<u8>)>,
    tail_size: usize,
}

impl Recording {
    pub(crate) fn add(&mut self, stream: Stream, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(KEEP - self.head_size));
        if !first.is_empty() {
            self.head_size += first.len();
            match self.head.last_mut() {
                Some((last, text)) if *last == stream => text.extend(first),
                _ => self.head.push((stream, first.to_vec())),
            }
        }
        if !rest.is_empty() {
            self.tail_size += rest.len();
            self.tail.push_back((stream, rest.to_vec()));
        }
        while self.tail_size > KEEP
            && let Some((stream, mut oldest)) = self.tail.pop_front()
        {
            let drop = oldest.len().min(self.tail_size - KEEP);
            self.omitted += drop;
            self.tail_size -= drop;
            if drop < oldest.len() {
                oldest.drain(..drop);
                self.tail.push_front((stream, oldest));
            }
        }
    }

    /// The outcome to record, one text a stream. So no text that must be masked is split over two
    /// pieces, or hidden in an encoding.
    pub(crate) fn joined(&self) -> Outcome {
        let text = |wanted: Stream| {
            let pieces = self.head.iter().chain(&self.tail);
            let pieces =
                pieces.filter(|(stream, _)| *stream == wanted).map(|(_, bytes)| &bytes[..]);
            String::from_utf8_lossy(&pieces.collect::<Vec<_>>().concat()).into_owned()
        };
        let mut pieces = Vec::new();
        for stream in [Stream::Out, Stream::Err] {
            let text = text(stream);
            if !text.is_empty() {
                pieces.push(piece(stream, text.as_bytes()));
            }
        }
        if self.omitted > 0 {
            pieces.push(json!({ "omitted": self.omitted }));
        }
        Outcome::from(json!({ "run": 1, "exit": 0, "output": pieces }).to_string())
    }

    /// The outcome to record.
    pub(crate) fn outcome(&self) -> Outcome {
        let mut pieces: Vec<Value> = Vec::new();
        for (stream, bytes) in &self.head {
            pieces.push(piece(*stream, bytes));
        }
        if self.omitted > 0 {
            pieces.push(json!({ "omitted": self.omitted }));
        }
        let mut tail: Vec<(Stream, Vec<u8>)> = Vec::new();
        for (stream, bytes) in &self.tail {
            match tail.last_mut() {
                Some((last, text)) if last == stream => text.extend(bytes),
                _ => tail.push((*stream, bytes.clone())),
            }
        }
        pieces.extend(tail.iter().map(|(stream, bytes)| piece(*stream, bytes)));
        Outcome::from(json!({ "run": 1, "exit": 0, "output": pieces }).to_string())
    }
}

fn piece(stream: Stream, bytes: &[u8]) -> Value {
    let mut piece = Map::new();
    match std::str::from_utf8(bytes) {
        Ok(text) => piece.insert(stream.name().into(), text.into()),
        Err(_) => piece.insert(format!("{}_base64", stream.name()), BASE64.encode(bytes).into()),
    };
    Value::Object(piece)
}

/// The contents of a recorded outcome, piece by piece. An outcome that `run` did not make is played
/// back as it is.
pub(crate) fn pieces(outcome: &Outcome) -> Vec<(Stream, Vec<u8>)> {
    let Some(body) = outcome.body() else { return Vec::new() };
    let document: Option<Value> = serde_json::from_slice(body).ok();
    let Some(output) =
        document.as_ref().filter(|d| d["run"] == 1).and_then(|d| d["output"].as_array())
    else {
        return vec![(Stream::Out, body.to_vec())];
    };
    output.iter().filter_map(read_piece).collect()
}

fn read_piece(piece: &Value) -> Option<(Stream, Vec<u8>)> {
    if let Some(omitted) = piece["omitted"].as_u64() {
        return Some((
            Stream::Err,
            format!("\nhapax: {omitted} bytes were not recorded here\n").into_bytes(),
        ));
    }
    let text = |name: &str| piece[name].as_str();
    let binary = |name: &str| BASE64.decode(piece[name].as_str()?.as_bytes()).ok();
    if let Some(out) = text("stdout") {
        Some((Stream::Out, out.as_bytes().to_vec()))
    } else if let Some(err) = text("stderr") {
        Some((Stream::Err, err.as_bytes().to_vec()))
    } else if let Some(out) = binary("stdout_base64") {
        Some((Stream::Out, out))
    } else {
        binary("stderr_base64").map(|err| (Stream::Err, err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(recording: &Recording) -> Vec<(Stream, Vec<u8>)> {
        pieces(&recording.outcome())
    }

    #[test]
    fn both_streams_come_back_in_their_order() {
        let mut recording = Recording::default();
        recording.add(Stream::Out, b"one ");
        recording.add(Stream::Out, b"two");
        recording.add(Stream::Err, b"\xff\x00");
        recording.add(Stream::Out, "drei\u{e9}".as_bytes());
        assert_eq!(
            played(&recording),
            [
                (Stream::Out, b"one two".to_vec()),
                (Stream::Err, b"\xff\x00".to_vec()),
                (Stream::Out, "drei\u{e9}".as_bytes().to_vec()),
            ]
        );
    }

    #[test]
    fn long_output_keeps_its_head_and_its_tail() {
        let mut recording = Recording::default();
        for i in 0..100_000 {
            recording.add(Stream::Out, format!("{i:09}\n").as_bytes());
        }
        let played = played(&recording);
        assert!(played[0].1.starts_with(b"000000000\n") && played[0].1.len() == KEEP);
        assert!(played[2].1.ends_with(b"000099999\n") && played[2].1.len() == KEEP);
        let note = String::from_utf8(played[1].1.clone()).unwrap();
        assert!(note.contains(&format!("{} bytes", 1_000_000 - 2 * KEEP)), "{note}");
    }
}
