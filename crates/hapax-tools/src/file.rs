//! Files under one directory.
//!
//! ```text
//!  write:  temporary file ──▶ sync ──▶ rename ──▶ sync of the directory
//!          └──────── nothing happened ──────┘    └─ it may not survive ─┘
//! ```
//!
//! A write did not happen if its temporary file is still there, or if there is no file. A file with
//! other content may come from a later writer, and so may a file that was to be removed: then a
//! lookup cannot tell.
//!
//! A path is walked name by name from the directory's own handle, and no link on the way is
//! followed. So no path leads out of the directory, even if another process changes the directory
//! meanwhile.

mod rooted_path;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use async_trait::async_trait;
use data_encoding::{BASE64, HEXLOWER};
use hapax::{Claim, Digest, Finding, Safety, Settling};
use hapax_core::json::Json;
use hapax_items::{Call, Class, Difference, Operation, Plan, Tool, ToolError};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::arguments::Arguments;
use crate::likeness::{same_but_blank_lines, same_document, same_lines};
use crate::{SettingsError, happened, named};
use rooted_path::{RESERVED, RootedPath};

/// How long after its holder is gone a missing file counts as not written.
///
/// A rename takes no time: it is done or it is not, and a dead process does none. A late rename
/// comes from a process that was stopped and goes on. A lookup sets the temporary file aside, so a
/// process that was stopped after making it cannot rename it. There remains a process that was
/// stopped before, and such a pause of a machine ends within this time.
const SETTLING_MS: u64 = 10_000;

/// Reads, writes and removes files.
pub struct FileTool {
    name: String,
    root: PathBuf,
    max_bytes: usize,
}

/// The files that a tool may touch.
#[derive(Debug, Clone)]
pub struct FileSettings {
    /// The name that scripts call it by.
    pub name: String,
    /// The directory that all of them are in.
    pub root: PathBuf,
    /// How large a file may be, in bytes.
    pub max_bytes: usize,
}

impl FileSettings {
    /// Files of at most a mebibyte under this directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { name: "file".into(), root: root.into(), max_bytes: 1024 * 1024 }
    }
}

const OPERATIONS: [Operation; 3] = [
    Operation { name: "read", mutates: false },
    Operation { name: "write", mutates: true },
    Operation { name: "remove", mutates: true },
];

impl FileTool {
    /// A tool for the files under a directory that is there.
    pub fn new(settings: FileSettings) -> Result<Self, SettingsError> {
        let FileSettings { name, root, max_bytes } = settings;
        let unusable = |error| SettingsError(format!("{}: {error}", root.display()));
        let absolute = std::path::absolute(&root).map_err(unusable)?;
        if !absolute.is_dir() {
            return Err(SettingsError(format!("{} is not a directory", root.display())));
        }
        Ok(Self { name: named(name)?, root: absolute, max_bytes })
    }

    fn rooted_path(&self, path: &str) -> Result<RootedPath, ToolError> {
        RootedPath::parse(&self.root, path).map_err(ToolError::logic)
    }

    fn planned(&self, call: &Call) -> Result<RootedPath, ToolError> {
        self.rooted_path(call.plan.identity.get("path").and_then(Json::as_str).unwrap_or_default())
    }
}

#[async_trait]
impl Tool for FileTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn operations(&self) -> &[Operation] {
        &OPERATIONS
    }

    fn plan(&self, operation: &str, arguments: &Json) -> Result<Plan, ToolError> {
        let target = format!("file://{}", self.root.display());
        let (path, payload) = match operation {
            "write" => {
                let arguments = Arguments::of(arguments, &["path", "content"])?;
                let content = arguments.text("content")?;
                if content.len() > self.max_bytes {
                    let most = self.max_bytes;
                    return Err(ToolError::logic(format!("a file has at most {most} bytes")));
                }
                let payload = Json::object([("content", Json::text(content))]);
                (arguments.text("path")?, payload)
            }
            "remove" => {
                (Arguments::of(arguments, &["path"])?.text("path")?, Json::Object(Vec::new()))
            }
            _ => return Err(ToolError::logic(format!("{} cannot {operation}", self.name))),
        };
        self.rooted_path(path)?;
        Ok(Plan { target, identity: Json::object([("path", Json::text(path))]), payload })
    }

    /// Line ends, and white space at the ends of lines and of the text, do not count. Other blank
    /// lines, and another notation of the same JSON document, are minor differences.
    fn compare_payload(&self, _operation: &str, recorded: &Json, requested: &Json) -> Difference {
        let (Some(one), Some(other)) = (content(recorded), content(requested)) else {
            return Difference::Significant;
        };
        match same_lines(one, other) {
            true => Difference::Equivalent,
            false if same_but_blank_lines(one, other) || same_document(one, other) => {
                Difference::Minor
            }
            false => Difference::Significant,
        }
    }

    fn safety(&self, _operation: &str) -> Safety {
        Safety::Reconcilable(Settling::AfterMs(SETTLING_MS))
    }

    async fn mutate(&self, call: &Call, claim: &Claim) -> Result<Json, ToolError> {
        let path = self.planned(call)?;
        let (temporary, again) = (temporary(call), claim.nth() > 1);
        match (call.operation.as_str(), content(&call.plan.payload)) {
            ("write", Some(content)) => {
                let content = content.to_owned();
                let aside = again.then(|| all_temporary(call));
                blocking(move || {
                    if let Some(of_before) = aside {
                        clear(&path, &of_before);
                    }
                    write(&path, &temporary, content.as_bytes())
                })
                .await
            }
            ("remove", _) => blocking(move || remove(&path)).await,
            _ => Ok(Err(ToolError::logic(format!("{} cannot {}", self.name, call.operation)))),
        }
        // The task may have come to any step before it was lost.
        .unwrap_or_else(|gone| Err(ToolError::indeterminate(gone)))
    }

    async fn reconcile(&self, call: &Call) -> Finding {
        let path = match self.planned(call) {
            Ok(path) => path,
            Err(error) => return Finding::CannotTell(error.message),
        };
        let (temporary, wanted) = (temporary(call), content(&call.plan.payload).map(str::to_owned));
        let removed = call.operation == "remove";
        let looked = blocking(move || match (removed, wanted) {
            (true, _) => found_removed(&path),
            (false, Some(wanted)) => found_written(&path, &temporary, wanted.as_bytes()),
            (false, None) => Finding::CannotTell("the content is not known".into()),
        });
        looked.await.unwrap_or_else(Finding::CannotTell)
    }

    async fn read(&self, operation: &str, arguments: &Json) -> Result<Json, ToolError> {
        if operation != "read" {
            return Err(ToolError::logic(format!("{} has no operation {operation}", self.name)));
        }
        let path = self.rooted_path(Arguments::of(arguments, &["path"])?.text("path")?)?;
        let most = self.max_bytes;
        let read = blocking(move || {
            let bytes = read(&path, most).map_err(|error| failed("read", &path, &error))?;
            if bytes.len() > most {
                let problem = format!("{} has more than {most} bytes", path.as_str());
                return Err(ToolError::precondition(problem));
            }
            let mut members = vec![
                ("path".to_owned(), Json::text(path.as_str())),
                ("size".to_owned(), Json::number(bytes.len() as u64)),
            ];
            members.extend(match String::from_utf8(bytes) {
                Ok(text) => vec![("content".to_owned(), Json::String(text))],
                Err(other) => vec![
                    ("content".to_owned(), Json::String(BASE64.encode(other.as_bytes()))),
                    ("encoding".to_owned(), Json::text("base64")),
                ],
            });
            Ok(Json::Object(members))
        });
        read.await.unwrap_or_else(|gone| Err(ToolError::transient(gone)))
    }

    fn check_by_hand(&self, call: &Call) -> String {
        let path = call.plan.identity.get("path").and_then(Json::as_str).unwrap_or_default();
        let file = self.root.join(path);
        match content(&call.plan.payload) {
            Some(content) => {
                format!(
                    "whether {} has the digest {}",
                    file.display(),
                    Digest::of(content.as_bytes())
                )
            }
            None => format!("whether {} is gone", file.display()),
        }
    }
}

fn content(payload: &Json) -> Option<&str> {
    payload.get("content").and_then(Json::as_str)
}

/// Each attempt has a file of its own, so that no two write into one.
fn temporary(call: &Call) -> String {
    format!("{}{}", all_temporary(call), call.fence)
}

/// The prefix of the names of all attempts at a mutation.
fn all_temporary(call: &Call) -> String {
    format!("{RESERVED}{}-", HEXLOWER.encode(&call.key.as_bytes()[..8]))
}

/// The name of a temporary file that a lookup set aside: no attempt renames it into place any more.
fn aside(temporary: &str) -> String {
    format!("{temporary}-void")
}

/// Removes the files that lookups of earlier attempts set aside.
fn clear(path: &RootedPath, temporary: &str) {
    let Ok(directory) = path.directory() else { return };
    let Ok(entries) = Dir::read_from(&directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy();
        if name.starts_with(temporary) && name.ends_with(&aside("")) {
            let _ = unlinkat(&directory, &*name, AtFlags::empty());
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| format!("it was broken off: {error}"))
}

fn write(path: &RootedPath, temporary: &str, content: &[u8]) -> Result<Json, ToolError> {
    let directory = path.directory_made().map_err(|error| failed("write", path, &error))?;
    let prepare = || -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&directory, temporary, flags, Mode::from(0o644))?);
        file.write_all(content)?;
        file.sync_all()?;
        Ok(renameat(&directory, temporary, &directory, path.name())?)
    };
    if let Err(error) = prepare() {
        let _ = unlinkat(&directory, temporary, AtFlags::empty());
        return Err(failed("write", path, &error));
    }
    directory.sync_all().map_err(|error| unsynced(path, &error))?;
    Ok(written(path, content))
}

fn written(path: &RootedPath, content: &[u8]) -> Json {
    Json::object([
        ("path", Json::text(path.as_str())),
        ("size", Json::number(content.len() as u64)),
        ("digest", Json::text(&Digest::of(content).to_string())),
    ])
}

/// A file that is not there counts as removed.
fn remove(path: &RootedPath) -> Result<Json, ToolError> {
    let gone = Json::object([("path", Json::text(path.as_str()))]);
    let directory = match path.directory() {
        Ok(directory) => directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(gone),
        Err(error) => return Err(failed("remove", path, &error)),
    };
    match unlinkat(&directory, path.name(), AtFlags::empty()).map_err(io::Error::from) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(gone),
        Err(error) => return Err(failed("remove", path, &error)),
    }
    directory.sync_all().map_err(|error| unsynced(path, &error))?;
    Ok(gone)
}

/// The bytes of a file, up to one more than requested.
fn read(path: &RootedPath, most: usize) -> io::Result<Vec<u8>> {
    let directory = path.directory()?;
    // A pipe would block until another process opens its other end.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&directory, path.name(), flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn found_written(path: &RootedPath, temporary: &str, wanted: &[u8]) -> Finding {
    let never = path.directory().is_ok_and(|directory| {
        let aside = aside(temporary);
        let _ = renameat(&directory, temporary, &directory, &aside);
        statat(&directory, &aside, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    });
    if never {
        return Finding::NotFound;
    }
    match read(path, wanted.len()) {
        Ok(found) if found == wanted => happened(&written(path, wanted)),
        Ok(_) => Finding::CannotTell(format!("{} has other content", path.as_str())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Finding::NotFound,
        Err(error) => Finding::CannotTell(failed("read", path, &error).message),
    }
}

fn found_removed(path: &RootedPath) -> Finding {
    match path.exists() {
        Ok(false) => happened(&Json::object([("path", Json::text(path.as_str()))])),
        Ok(true) => Finding::CannotTell(format!("{} is there, or there again", path.as_str())),
        Err(error) => Finding::CannotTell(failed("look at", path, &error).message),
    }
}

fn failed(what: &str, path: &RootedPath, error: &io::Error) -> ToolError {
    let message = format!("cannot {what} {}: {error}", path.as_str());
    ToolError { class: class(error), message }
}

fn unsynced(path: &RootedPath, error: &io::Error) -> ToolError {
    ToolError::indeterminate(format!("{} is changed, but not yet for good: {error}", path.as_str()))
}

/// The class of an error that came before any change.
fn class(error: &io::Error) -> Class {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Class::Permission,
        Some(
            Errno::AGAIN
            | Errno::BUSY
            | Errno::DQUOT
            | Errno::INTR
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::NOSPC
            | Errno::TIMEDOUT,
        ) => Class::Transient,
        _ => Class::Precondition,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_has_a_class() {
        for (errno, expected) in [
            (Errno::ACCESS, Class::Permission),
            (Errno::PERM, Class::Permission),
            (Errno::ROFS, Class::Permission),
            (Errno::NOSPC, Class::Transient),
            (Errno::DQUOT, Class::Transient),
            (Errno::MFILE, Class::Transient),
            (Errno::NOENT, Class::Precondition),
            (Errno::NOTDIR, Class::Precondition),
            (Errno::ISDIR, Class::Precondition),
            (Errno::LOOP, Class::Precondition),
            (Errno::IO, Class::Precondition),
        ] {
            assert_eq!(class(&errno.into()), expected, "{errno}");
        }
        assert_eq!(class(&io::Error::other("it is not a file")), Class::Precondition);
    }
}
