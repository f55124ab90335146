//! A scan: walks the trees, reads the files, finds hits, and sorts out those that are allowed.

use std::fs;
use std::io;
use std::panic;
use std::path::PathBuf;
use std::thread;

use crate::config::Config;
use crate::inline;
use crate::pattern;
use crate::report::{Allowed, Finding, Report, Suppression, Unparsed, UnusedAllow};
use crate::rule::Rule;
use crate::rust;
use crate::source::{Language, Source};
use crate::walk::{self, FILE_MAX_BYTES, FILES_MAX, SourceFile};

/// The stack of the scan thread: syntax trees can be deep, and are read by recursion.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// Why a scan could not be finished. A gate does not pass what it has not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// A root is not there.
    #[error("{} does not exist; name a file or a directory", .0.display())]
    NoRoot(PathBuf),
    /// More than [`FILES_MAX`] source files.
    #[error("more than {FILES_MAX} source files; exclude what is generated or not yours")]
    TooManyFiles,
    /// A file or directory cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There was no thread to scan on.
    #[error("no thread to scan on")]
    NoThread(#[source] io::Error),
}

/// Where a rule trips, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) rule: Rule,
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) why: String,
}

/// Scans source trees, in the order given.
///
/// Links are not followed. Hidden directories, `target`, `vendor`, `node_modules` and the like
/// are skipped, and so are tests unless the configuration includes them.
pub fn scan(roots: &[PathBuf], config: &Config) -> Result<Report, ScanError> {
    thread::scope(|scope| {
        let scan = thread::Builder::new().name("hapax-lint".to_owned()).stack_size(STACK_BYTES);
        let scan = scan.spawn_scoped(scope, || Scan::new(config).run(roots));
        let done = scan.map_err(ScanError::NoThread)?.join();
        done.unwrap_or_else(|cause| panic::resume_unwind(cause))
    })
}

struct Scan<'a> {
    config: &'a Config,
    /// For each allow of the configuration, whether it allowed anything.
    used: Vec<bool>,
    report: Report,
}

impl<'a> Scan<'a> {
    fn new(config: &'a Config) -> Self {
        Self { config, used: vec![false; config.allow.len()], report: Report::default() }
    }

    fn run(mut self, roots: &[PathBuf]) -> Result<Report, ScanError> {
        for file in walk::files(roots, self.config)? {
            self.file(&file)?;
        }
        for (allow, _) in self.config.allow.iter().zip(self.used).filter(|(_, used)| !used) {
            self.report.unused_allows.push(UnusedAllow {
                rule: allow.rule,
                path: allow.path.glob().to_string(),
                line: allow.line,
                by: Suppression::Config,
            });
        }
        Ok(self.report)
    }

    fn file(&mut self, file: &SourceFile) -> Result<(), ScanError> {
        if file.bytes > FILE_MAX_BYTES {
            self.report.skipped.large.push(file.name.clone());
            return Ok(());
        }
        let unreadable = |source| ScanError::Unreadable { path: file.path.clone(), source };
        let bytes = fs::read(&file.path).map_err(unreadable)?;
        if bytes.contains(&0) {
            self.report.skipped.binary.push(file.name.clone());
            return Ok(());
        }
        self.report.files += 1;
        let source = Source::new(file.language, String::from_utf8_lossy(&bytes).into_owned());
        let mut hits = match file.language {
            Language::Rust => rust::find(&source, self.config.include_tests).unwrap_or_else(|e| {
                let rust::NotRead { line, problem } = e;
                self.report.unparsed.push(Unparsed { path: file.name.clone(), line, problem });
                pattern::find(&source)
            }),
            _ => pattern::find(&source),
        };
        hits.sort_by_key(|hit| (hit.line, hit.rule, hit.column));
        hits.dedup_by_key(|hit| (hit.line, hit.rule));
        self.sort_out(file, &source, hits);
        Ok(())
    }

    fn sort_out(&mut self, file: &SourceFile, source: &Source, hits: Vec<Hit>) {
        let (allows, faults) = inline::allows(source);
        let mut used = vec![false; allows.len()];
        for hit in hits {
            let here = allows.iter().position(|a| a.rule == hit.rule && a.covers == hit.line);
            let there = self
                .config
                .allow
                .iter()
                .position(|a| a.rule == hit.rule && a.path.is_match(&file.name));
            let finding = Finding::new(file, source, hit);
            let (by, reason) = match (here, there) {
                (Some(at), _) => {
                    used[at] = true;
                    (Suppression::Inline, allows[at].reason.clone())
                }
                (None, Some(at)) => {
                    self.used[at] = true;
                    (Suppression::Config, self.config.allow[at].reason.clone())
                }
                (None, None) => {
                    self.report.findings.push(finding);
                    continue;
                }
            };
            self.report.allowed.push(Allowed { finding, reason, by });
        }
        let faults = faults.into_iter().map(|hit| Finding::new(file, source, hit));
        self.report.findings.extend(faults);
        for (allow, _) in allows.iter().zip(used).filter(|(_, used)| !used) {
            self.report.unused_allows.push(UnusedAllow {
                rule: allow.rule,
                path: file.name.clone(),
                line: allow.line,
                by: Suppression::Inline,
            });
        }
    }
}
