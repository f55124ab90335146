//! A path under a root directory. Each directory on the way is opened by a handle, without
//! following links.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, statat};

/// The prefix of the names of temporary files.
pub(super) const RESERVED: &str = ".hapax-";

/// How long a path may be, in bytes, and how deep.
const LONGEST: usize = 1024;
const DEEPEST: usize = 32;

/// The path of a file that exists or could exist, under a root directory that it cannot leave.
pub(super) struct RootedPath {
    root: PathBuf,
    path: String,
    folders: Vec<String>,
    name: String,
}

impl RootedPath {
    /// A path is names with slashes between; it has only one spelling.
    pub(super) fn parse(root: &Path, path: &str) -> Result<Self, String> {
        let refuse =
            |why: &str| Err(format!("{:?}: {why}", path.chars().take(200).collect::<String>()));
        if path.len() > LONGEST || path.split('/').count() > DEEPEST {
            return refuse("a path has at most 1024 bytes and 32 names");
        }
        for name in path.split('/') {
            if matches!(name, "" | "." | "..") {
                return refuse("a path is relative, and has no empty names, dots or double dots");
            }
            if name.len() > 255 || name.contains(['\\', '\0']) || name.contains(char::is_control) {
                return refuse(
                    "a name has at most 255 bytes, and no backslash or control character",
                );
            }
            if name.starts_with(RESERVED) {
                return refuse("names that begin with .hapax- are those of temporary files");
            }
        }
        let mut folders: Vec<String> = path.split('/').map(str::to_owned).collect();
        let name = folders.pop().unwrap_or_default();
        Ok(Self { root: root.to_owned(), path: path.to_owned(), folders, name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn as_str(&self) -> &str {
        &self.path
    }

    /// The directory that it is in.
    pub(super) fn directory(&self) -> io::Result<File> {
        let root = File::from(openat(CWD, &self.root, FOLDER, Mode::empty())?);
        self.folders.iter().try_fold(root, |above, name| enter(&above, name))
    }

    /// The directory that it is in, made if it is not there.
    pub(super) fn directory_made(&self) -> io::Result<File> {
        let root = File::from(openat(CWD, &self.root, FOLDER, Mode::empty())?);
        self.folders.iter().try_fold(root, |above, name| match enter(&above, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&above, name, Mode::from(0o755)).map_err(io::Error::from) {
                    Ok(()) => above.sync_all()?,
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error),
                }
                enter(&above, name)
            }
            entered => entered,
        })
    }

    /// Whether a file or anything else of this name is there.
    pub(super) fn exists(&self) -> io::Result<bool> {
        let found = self.directory().and_then(|directory| {
            Ok(statat(&directory, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW)?)
        });
        match found {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn enter(above: &File, name: &str) -> io::Result<File> {
    Ok(File::from(openat(above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?))
}
