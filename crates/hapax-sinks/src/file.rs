//! A file of JSON lines: appended, synced, and rotated when it is large.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hapax::outbox::{Acks, Delivery, Retryability, Sink};

use crate::form::Form;

/// The default size at which a file is rotated.
const ROTATE: u64 = 64 * 1024 * 1024;

/// Appends each event as a line of JSON. An event counts as delivered once its line is synced.
///
/// A line that a crash cut short is ended, so that readers can skip it. When the file is large it
/// is renamed to `NAME.1`, `NAME.2` and so on, the newest with the highest number.
#[derive(Debug, Clone)]
pub struct LinesFile {
    path: PathBuf,
    rotate: u64,
    form: Form,
    open: Arc<Mutex<Option<File>>>,
}

impl LinesFile {
    /// A file at this path, which is created when the first event comes.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), rotate: ROTATE, form: Form::default(), open: Arc::default() }
    }

    /// Rotates the file once it is this large, in bytes.
    pub fn rotate_at(mut self, bytes: u64) -> Self {
        self.rotate = bytes;
        self
    }

    /// Writes events in this form, a line for each.
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    fn append(&self, lines: &str) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let file = match &mut *open {
            Some(file) => file,
            none => none.insert(begin(&self.path)?),
        };
        let written = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
        let large = written.is_ok() && file.metadata()?.len() >= self.rotate;
        if written.is_err() || large {
            *open = None;
        }
        if large {
            put_aside(&self.path)?;
        }
        written
    }
}

/// Opens the file, ends a line that a crash cut short, and syncs the directory.
fn begin(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
    if file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    sync_name(path)?;
    Ok(file)
}

fn put_aside(path: &Path) -> io::Result<()> {
    let aside = |nth: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{nth}"));
        PathBuf::from(name)
    };
    let free = (1..).find(|nth| !aside(*nth).exists()).unwrap_or(u32::MAX);
    std::fs::rename(path, aside(free))?;
    sync_name(path)
}

fn sync_name(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

impl Sink for LinesFile {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        let (mut lines, mut never) = (String::new(), BTreeMap::new());
        for (nth, delivery) in deliveries.iter().enumerate() {
            match self.form.write(&delivery.record) {
                Ok(Some(line)) => lines = lines + &line + "\n",
                Ok(None) => {}
                Err(why) => drop(never.insert(nth, why)),
            }
        }
        let file = self.clone();
        let written = tokio::task::spawn_blocking(move || file.append(&lines)).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        for nth in 0..deliveries.len() {
            match &written {
                Ok(()) => match never.remove(&nth) {
                    Some(why) => acks.refused(nth, why, Retryability::Never),
                    None => acks.delivered(nth),
                },
                Err(error) => {
                    let reason = format!("{}: {error}", self.path.display());
                    acks.refused(nth, reason, Retryability::SinkDown);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_put_aside_and_cut_lines_are_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        std::fs::write(&path, "cut sho").unwrap();
        let file = LinesFile::new(&path).rotate_at(24);
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            file.append(line).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(read("events.jsonl.1"), "cut sho\none\ntwo\nthree\nfour\n".split_at(27).0);
        let _ = file.append("five\n");
        assert!(read("events.jsonl").ends_with("five\n"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = LinesFile::new(directory.path());
        assert!(file.append("line\n").is_err());
    }
}
