//! Decides which files are read, in which order, and under which name.
//!
//! A file is named by the way it was given: `src/a.rs` beneath the root `.`, `x/a.rs` beneath
//! the root `x`. An absolute root is not part of the names beneath it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use crate::config::Config;
use crate::scan::ScanError;
use crate::source::Language;

/// The largest file that is read.
pub const FILE_MAX_BYTES: u64 = 2 * 1024 * 1024;

/// The most files one scan reads.
pub const FILES_MAX: usize = 200_000;

/// Directories of third-party code, and of build output.
const FOREIGN: [&str; 5] = ["target", "node_modules", "vendor", "__pycache__", "venv"];
const TESTS: [&str; 4] = ["tests", "benches", "test", "__tests__"];

/// A source file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) language: Language,
    pub(crate) bytes: u64,
}

/// Every source file beneath the roots, each once.
pub(crate) fn files(roots: &[PathBuf], config: &Config) -> Result<Vec<SourceFile>, ScanError> {
    let mut files = Vec::new();
    let mut taken = BTreeSet::new();
    for root in roots {
        if !root.exists() {
            return Err(ScanError::NoRoot(root.clone()));
        }
        let wanted = |entry: &DirEntry| entry.depth() == 0 || is_wanted(entry, root, config);
        let walk = WalkDir::new(root).follow_links(false).sort_by_file_name();
        for entry in walk.into_iter().filter_entry(wanted) {
            let entry = entry.map_err(|e| unreadable(root, e))?;
            let Some(language) = Language::of(entry.path()) else { continue };
            // A root that is a link has the type of its target.
            let file = entry.file_type().is_file() || entry.depth() == 0 && root.is_file();
            if !file || !taken.insert(plain(entry.path())) {
                continue;
            }
            if files.len() == FILES_MAX {
                return Err(ScanError::TooManyFiles);
            }
            let bytes = entry.metadata().map_err(|e| unreadable(root, e))?.len();
            let name = name_of(entry.path(), root);
            files.push(SourceFile { path: entry.into_path(), name, language, bytes });
        }
    }
    Ok(files)
}

fn is_wanted(entry: &DirEntry, root: &Path, config: &Config) -> bool {
    let name = entry.file_name().to_string_lossy();
    if entry.file_type().is_dir() {
        let foreign = FOREIGN.contains(&&*name) || name.starts_with('.');
        let tests = !config.include_tests && TESTS.contains(&&*name);
        if foreign || tests {
            return false;
        }
    } else if !config.include_tests && is_test_file(&name) {
        return false;
    }
    !config.excludes(&name_of(entry.path(), root))
}

/// Whether a file is a test by its name, under the conventions of its language.
fn is_test_file(name: &str) -> bool {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    match extension {
        "rs" => stem == "tests",
        "go" | "rb" => stem.ends_with("_test") || stem.ends_with("_spec"),
        "py" => stem.starts_with("test_") || stem.ends_with("_test") || stem == "conftest",
        "java" | "kt" | "cs" | "php" => stem.ends_with("Test") || stem.ends_with("Tests"),
        _ => stem.ends_with(".test") || stem.ends_with(".spec"),
    }
}

fn name_of(path: &Path, root: &Path) -> String {
    let beneath = if root.is_absolute() { path.strip_prefix(root).unwrap_or(path) } else { path };
    let beneath = match path.file_name() {
        Some(name) if beneath.as_os_str().is_empty() => Path::new(name),
        _ => beneath,
    };
    let parts = beneath.components().filter(|part| *part != Component::CurDir);
    let parts: Vec<_> = parts.map(|part| part.as_os_str()).map(OsStr::to_string_lossy).collect();
    parts.join("/")
}

/// The same path without `.` in it.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

fn unreadable(root: &Path, e: walkdir::Error) -> ScanError {
    let path = e.path().unwrap_or(root).to_owned();
    ScanError::Unreadable { path, source: e.into() }
}
