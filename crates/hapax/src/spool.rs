//! Reports that the ledger could not record, each kept in a file until it can: beside a ledger in a file,
//! or in the user's own directory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use hapax_core::effect::{Report, Settled};
use hapax_core::outcome::Digest;
use hapax_store::command::Settle;
use hapax_store::outbox::Attachments;
use hapax_store::{StoreError, call, spool};

use crate::engine::Inner;

/// How many reports are recorded at once.
const MOST: usize = 1_000;

/// The directories in which reports are kept. The first that can be written to gets a report.
#[derive(Debug, Clone)]
pub(crate) struct Spool(Vec<PathBuf>);

impl Spool {
    /// The spool of a ledger in a file. If its disk is full, another one may not be.
    pub(crate) fn of_file(database: &Path) -> Self {
        let mut beside = database.as_os_str().to_owned();
        beside.push("-spool");
        let digest = Digest::of(database.as_os_str().as_encoded_bytes()).to_string();
        let name = digest.trim_start_matches("sha256:").get(..32).unwrap_or_default();
        Self([Some(beside.into()), at_home(name)].into_iter().flatten().collect())
    }

    /// The spool of the ledger of this id.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_database(ledger: &str) -> Self {
        Self(at_home(ledger).into_iter().collect())
    }

    /// Keeps a report, durably. Returns its file.
    fn keep(&self, settle: &Settle) -> std::io::Result<PathBuf> {
        let mut failed = std::io::Error::other("this user has no home directory");
        for directory in &self.0 {
            match keep_in(directory, settle) {
                Ok(file) => return Ok(file),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The reports that are kept, with their files.
    fn kept(&self) -> Vec<(PathBuf, Settle)> {
        let entries = self.0.iter().filter_map(|directory| directory.read_dir().ok()).flatten();
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let files = files.filter(|file| file.extension().is_some_and(|end| end == "report"));
        let read = |file: PathBuf| Some((file.clone(), spool::parse(&std::fs::read(&file).ok()?)?));
        files.filter_map(read).take(MOST).collect()
    }
}

fn at_home(name: &str) -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("hapax").join(format!("{name}-spool")))
}

fn keep_in(directory: &Path, settle: &Settle) -> std::io::Result<PathBuf> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)?;
    let file = directory.join(format!("{}.report", settle.attempt));
    let draft = file.with_extension("draft");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&draft).and_then(|mut draft| {
        draft.write_all(spool::print(settle).as_bytes())?;
        draft.sync_all()
    });
    if let Err(error) = written {
        let _ = std::fs::remove_file(&draft);
        return Err(error);
    }
    std::fs::rename(&draft, &file)?;
    File::open(directory)?.sync_all()?;
    Ok(file)
}

/// Whether this error says nothing about the report itself.
pub(crate) fn is_of_the_store(error: &StoreError) -> bool {
    error.is_transient()
        || matches!(
            error,
            StoreError::Stopped(_) | StoreError::Corrupt(_) | StoreError::Incompatible(_)
        )
}

/// Keeps a report that could not be recorded. `None` if it could not be kept either, or if the ledger
/// itself is not kept on disk.
pub(crate) async fn keep(inner: &Inner, settle: &Settle) -> Option<PathBuf> {
    let (spool, settle) = (inner.spool.clone()?, settle.clone());
    let (key, attempt) = (settle.name.key, settle.attempt);
    let kept = tokio::task::spawn_blocking(move || spool.keep(&settle)).await;
    match kept.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::error!(name: "outcome_not_kept", %error, %key, %attempt, "an outcome could be neither recorded nor kept in a file");
            None
        }
    }
}

/// Removes the file of a report that is recorded.
pub(crate) fn remove(file: Option<&Path>) {
    if let Some(file) = file
        && let Err(error) = std::fs::remove_file(file)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(name: "kept_outcome_not_removed", %error, file = %file.display(), "an outcome is recorded, and its file could not be removed; recording it again does no harm");
    }
}

/// Records the reports that this process or another could not record. Those that still cannot be recorded
/// stay.
pub(crate) async fn record_kept(inner: &Inner) {
    let Some(spool) = inner.spool.clone() else { return };
    let kept = tokio::task::spawn_blocking(move || spool.kept()).await.unwrap_or_default();
    for (file, settle) in kept {
        let (key, attempt) = (settle.name.key, settle.attempt);
        let mut recorded = call(&*inner.store, settle.clone()).await;
        if let Err(error) = &recorded
            && !is_of_the_store(error)
        {
            // The work was done, and the ledger refuses what goes with its outcome.
            let report = Report::Ambiguous(format!("its events were refused: {error}"));
            let part = settle.attachments.part.clone();
            let attachments = Attachments { part, ..Attachments::default() };
            recorded = call(&*inner.store, Settle { report, attachments, ..settle }).await;
        }
        match recorded {
            Ok(Settled::Recorded | Settled::Repeated) => {
                inner.emitted.notify_one();
                tracing::info!(name: "kept_outcome_recorded", %key, %attempt, "an outcome that was kept in a file is recorded now");
            }
            Ok(Settled::Fenced(_) | Settled::Outdated(_)) => {
                tracing::error!(name: "kept_outcome_overtaken", %key, %attempt, "an outcome that was kept in a file came too late: the attempt was overtaken; see its journal");
            }
            Err(error) => {
                tracing::warn!(name: "kept_outcome_waits", %error, %key, %attempt, "an outcome that is kept in a file cannot be recorded yet");
                return;
            }
        }
        remove(Some(&file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::attempt::{AttemptId, Fence};
    use hapax_core::key::Key;
    use hapax_core::name::{Name, Namespace};

    /// Proves K-24: a report is kept whole, and where there is room.
    #[test]
    fn a_report_is_kept_where_it_can_be() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("a-file");
        std::fs::write(&file, "no directory").unwrap();
        let spool = Spool(vec![file.join("below"), room.path().join("there")]);
        let settle = Settle {
            name: Name { namespace: Namespace::default(), key: Key::from_bytes([1; 32]) },
            attempt: AttemptId::from_bytes([2; 16]),
            fence: Some(Fence(3)),
            report: Report::Failed("no".into()),
            attachments: Attachments::default(),
        };
        let kept = spool.keep(&settle).unwrap();
        assert_eq!(spool.keep(&settle).unwrap(), kept, "once for each attempt");
        assert!(kept.starts_with(room.path().join("there")));
        std::fs::write(kept.with_file_name("att_half.report"), "{\"form\"").unwrap();
        let [(again, read)] = &spool.kept()[..] else { panic!("one report") };
        assert_eq!((again, format!("{read:?}")), (&kept, format!("{settle:?}")));
        remove(Some(&kept));
        assert!(spool.kept().is_empty());
        assert!(Spool(Vec::new()).keep(&settle).is_err());
    }
}
