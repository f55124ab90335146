//! `hapax journal archive` and `hapax outbox archive`: old months leave the database, one file each.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use hapax_postgres::{History, Options, PgStore};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use hapax_server::wire;

use crate::args::{Archive, Global};
use crate::exit::{Exit, Failed};
use crate::output;

pub(crate) async fn main(
    global: &Global,
    history: History,
    args: &Archive,
) -> Result<Exit, Failed> {
    let url = global.db.to_str().filter(|url| url.starts_with("postgres"));
    let url = url.ok_or_else(|| Failed::usage("archive is for PostgreSQL: --db postgres://…"))?;
    let month =
        month(&args.before).ok_or_else(|| Failed::usage("--before is a month such as 2026-01"))?;
    let (url, to, json) = (url.to_owned(), args.to.clone(), global.json);
    let archived =
        tokio::task::spawn_blocking(move || archive(&url, history, &month, &to, json)).await;
    archived.map_err(|error| Failed::new(Exit::Unreachable, error.to_string()))??;
    Ok(Exit::Done)
}

/// `2026-01` as partitions are named.
fn month(text: &str) -> Option<String> {
    let (year, month) = text.split_once('-')?;
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let right = digits(year, 4) && digits(month, 2) && ("01"..="12").contains(&month);
    right.then(|| format!("{year}_{month}"))
}

fn archive(url: &str, history: History, month: &str, to: &Path, json: bool) -> Result<(), Failed> {
    let store = |error: hapax::StoreError| Failed::from(hapax::Error::from(error));
    let options = Options { lanes: 1, readers: 1, ..Options::default() };
    let ledger = PgStore::open(url, options).map_err(store)?;
    for partition in ledger.partitions_before(history, month).map_err(store)? {
        let path = to.join(format!("{partition}.jsonl"));
        let io = |error: std::io::Error| {
            Failed::new(Exit::Usage, format!("{}: {error}", path.display()))
        };
        let mut file = Hashing {
            file: BufWriter::new(File::create_new(&path).map_err(io)?),
            digest: Sha256::new(),
        };
        let exported = match history {
            History::Journal => {
                ledger.export(&partition, |leaf, entry| file.line(&wire::Leaf::of(leaf, entry)))
            }
            History::Outbox => ledger.export_records(&partition, |found| {
                let namespace = found.record.name.namespace.as_str();
                file.line(&ArchivedEvent { namespace, record: wire::Record::of(found) })
            }),
        };
        // A partition that cannot be exported yet leaves no file, so that the command can be run again.
        let count = exported.inspect_err(|_| _ = std::fs::remove_file(&path)).map_err(store)?;
        file.flush().and_then(|()| file.file.get_ref().sync_all()).map_err(io)?;
        let digest = file.digest.finalize().into();
        let detached = match history {
            History::Journal => ledger.detach(&partition, digest),
            History::Outbox => ledger.detach_records(&partition, count, digest),
        };
        detached.map_err(store)?;
        let unit = match history {
            History::Journal => "entries",
            History::Outbox => "events",
        };
        if json {
            output::json(&json!({ "partition": partition, unit: count, "file": path }));
        } else {
            output::print(&format!("{partition}: {count} {unit} in {}, detached", path.display()));
        }
    }
    Ok(())
}

/// An event in an archive.
#[derive(Serialize)]
struct ArchivedEvent<'a> {
    namespace: &'a str,
    #[serde(flatten)]
    record: wire::Record,
}

/// A file and the digest of what was written to it.
struct Hashing {
    file: BufWriter<File>,
    digest: Sha256,
}

impl Hashing {
    fn line(&mut self, record: &impl Serialize) -> std::io::Result<()> {
        serde_json::to_writer(&mut *self, record)?;
        writeln!(self)
    }
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_a_year_and_two_digits() {
        assert_eq!(month("2026-01").as_deref(), Some("2026_01"));
        for bad in ["2026", "2026-13", "2026-1", "26-01", "2026-00", "2026_01"] {
            assert_eq!(month(bad), None, "{bad}");
        }
    }
}
