//! Replay: compares the journal with the files that are there, or does operations again in a
//! sandbox. It never repeats a success in its original place, and it only reads history. A replay
//! is an effect of its own that records what it expected, what it found and where they differ.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Component, Path, PathBuf};

use hapax::canonical::canonical;
use hapax::json::Json;
use hapax::{Digest, Failure, Hapax, Key, Safety, State, StateName};

use crate::catalog::{self, Collections};
use crate::contract;
use crate::error::Error;
use crate::lifecycle::Inputs;
use crate::lineage::openlineage;
use crate::pipeline::Pipeline;
use crate::run::{Artifact, Fold, Moment, Product, Run, RunChange};
use hapax::document::Object;

/// The operations to replay, and where their files are.
#[derive(Debug, Clone, Default)]
pub struct ReplayScope {
    /// Only operations on this dataset.
    pub dataset: Option<String>,
    /// Only operations of these tasks; of all, if there are none.
    pub tasks: Vec<String>,
    /// The directory of recorded files whose URI is relative.
    pub files: PathBuf,
    /// A catalog that `verify` compares with the journal too. Its collections are compared only
    /// where the scope has all datasets and tasks.
    pub catalog: Option<PathBuf>,
}

impl ReplayScope {
    fn is_all(&self) -> bool {
        self.dataset.is_none() && self.tasks.is_empty()
    }

    fn has(&self, run: &Run) -> bool {
        let operation = &run.about.operation;
        self.dataset.as_ref().is_none_or(|dataset| *dataset == operation.dataset_id)
            && (self.tasks.is_empty() || self.tasks.contains(&operation.task_id))
    }
}

/// The result of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayReport {
    /// The record of the replay itself.
    pub key: Key,
    /// How many successful operations were examined.
    pub operations: u64,
    /// How many of them were done again in a sandbox.
    pub executed: u64,
    /// How many were skipped. The record was cleared since; or, in a sandbox, a guard refuses
    /// the operation, it is sensitive, it has no program, or its files are outside.
    pub skipped: u64,
    /// How many outputs could not be compared, because they are not on this machine.
    pub elsewhere: u64,
    /// The hash of everything that was expected.
    pub expected: Digest,
    /// The hash of everything that was found.
    pub actual: Digest,
    /// The hash of the lineage of all runs in scope, byte by byte.
    pub lineage: Digest,
    /// Where they differ, in the order of the journal.
    pub divergences: Vec<Divergence>,
}

/// A difference from the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The operation.
    pub key: Key,
    /// Its entry in the journal.
    pub entry: u64,
    /// Its kind: `outcome`, `input`, `output`, `size`, `document`, `run`, or `guard`.
    pub what: &'static str,
    /// The thing that differs, such as the place of a file.
    pub which: String,
    /// The value that the journal leads to expect.
    pub expected: String,
    /// The value found; `None` if there is none.
    pub actual: Option<String>,
}

/// The most divergences that are kept.
const MOST: usize = 1_000;

/// How many entries are read at once.
const PAGE: usize = 1_000;

/// Compares recorded hashes with the files that are there. Runs nothing.
pub async fn verify(hapax: &Hapax, scope: &ReplayScope) -> Result<ReplayReport, Error> {
    let mut replay = Replay::new(hapax, scope);
    replay
        .read(async |replay, run, entry, product, digest| {
            replay.compare_outcome(&run, entry, digest).await?;
            for artifact in product.map(|product| product.outputs).unwrap_or_default() {
                replay.compare_output(&run, entry, &artifact, local(&scope.files, &artifact.uri));
            }
            Ok(())
        })
        .await?;
    replay.compare_catalog();
    replay.record("verify").await
}

/// Does operations again, each in a directory of its own below `sandbox`, and compares their
/// outputs. `execute` gets the run and its directory, which holds the inputs, and runs the recorded
/// program there. Its error is the reason why the program failed.
pub async fn execute<F, Fut>(
    hapax: &Hapax,
    scope: &ReplayScope,
    mode: &'static str,
    sandbox: &Path,
    execute: F,
) -> Result<ReplayReport, Error>
where
    F: Fn(Run, PathBuf) -> Fut,
    Fut: Future<Output = Result<(), String>>,
{
    let (mut replay, pipeline) = (Replay::new(hapax, scope), Pipeline::new(hapax.clone()));
    replay
        .read(async |replay, run, entry, product, _| {
            let terms = &run.about.terms;
            let sensitive = terms.masked.is_some() || terms.sovereign;
            let outputs = product.as_ref().map(|product| &product.outputs[..]).unwrap_or_default();
            if sensitive || run.about.operation.program.is_empty() || leaves(&run, outputs) {
                replay.found.skipped += 1;
                return Ok(());
            }
            // An operation that was allowed then may be refused now.
            let (documents, unreadable) = inputs(&run, scope);
            let inputs = Inputs { documents: &documents, unreadable: &unreadable };
            if let Some(refusal) = pipeline.refuses_replay(&run.about.operation, inputs).await? {
                replay.found.skipped += 1;
                let (which, reason) = (&run.about.operation.dataset_id, refusal.to_string());
                replay.diverge(
                    &run,
                    entry,
                    Discrepancy::new("guard", which, "it may", Some(reason)),
                );
                return Ok(());
            }
            if pipeline.declared(&run.about.operation.dataset_id).await?.dataset.is_sensitive() {
                replay.found.skipped += 1;
                return Ok(());
            }
            let room = sandbox.join(room(run.key, run.generation));
            if let Err(differs) = furnish(&run, scope, &room) {
                replay.diverge(&run, entry, differs);
                return Ok(());
            }
            replay.found.executed += 1;
            if let Err(why) = execute(run.clone(), room.clone()).await {
                replay.diverge(
                    &run,
                    entry,
                    Discrepancy::new("run", "the program", "it ends well", Some(why)),
                );
                return Ok(());
            }
            for artifact in product.map(|product| product.outputs).unwrap_or_default() {
                let path = inside(&artifact.uri).map(|path| room.join(path));
                replay.compare_output(&run, entry, &artifact, path);
            }
            Ok(())
        })
        .await?;
    replay.record(mode).await
}

struct Discrepancy {
    what: &'static str,
    which: String,
    expected: String,
    actual: Option<String>,
}

impl Discrepancy {
    fn new(what: &'static str, which: &str, expected: &str, actual: Option<String>) -> Self {
        Self { what, which: which.to_owned(), expected: expected.to_owned(), actual }
    }
}

/// Whether an operation reads or writes outside its sandbox directory.
fn leaves(run: &Run, outputs: &[Artifact]) -> bool {
    let read = run.about.operation.inputs.iter().filter_map(|input| input.uri.as_deref());
    let written = outputs.iter().map(|output| output.uri.as_str());
    read.chain(written).any(|place| inside(place).is_none())
}

/// The documents in the inputs, for the data contract, and the names of inputs without any.
fn inputs(run: &Run, scope: &ReplayScope) -> (Vec<Json>, Vec<String>) {
    let (mut documents, mut unreadable) = (Vec::new(), Vec::new());
    for input in &run.about.operation.inputs {
        let path = input.uri.as_deref().and_then(|place| local(&scope.files, place));
        match path.and_then(|path| contract::documents(&path)) {
            Some(found) => documents.extend(found),
            None => unreadable.push(input.name.clone()),
        }
    }
    (documents, unreadable)
}

/// Copies the inputs into a directory, if their checksums are the recorded ones.
fn furnish(run: &Run, scope: &ReplayScope, room: &Path) -> Result<(), Discrepancy> {
    let failed = |error: std::io::Error| {
        Discrepancy::new("input", "the sandbox", "a directory", Some(error.to_string()))
    };
    std::fs::create_dir_all(room).map_err(failed)?;
    for input in &run.about.operation.inputs {
        let Some(place) = input.uri.as_deref() else { continue };
        let expected = input.checksum.as_deref().unwrap_or_default();
        let path = local(&scope.files, place);
        let actual = path.as_deref().and_then(checksum);
        if actual.as_deref() != Some(expected) {
            return Err(Discrepancy::new("input", place, expected, actual));
        }
        if let (Some(from), Some(to)) = (path, inside(place)) {
            let to = room.join(to);
            std::fs::create_dir_all(to.parent().unwrap_or(room)).map_err(failed)?;
            std::fs::copy(from, to).map_err(failed)?;
        }
    }
    Ok(())
}

/// A replay under way.
struct Replay<'a> {
    hapax: &'a Hapax,
    scope: &'a ReplayScope,
    found: ReplayReport,
    /// The documents a catalog has to have, by path; where two runs write one, the later run's.
    documents: BTreeMap<String, (Run, u64, Digest)>,
    collections: Collections,
}

impl<'a> Replay<'a> {
    fn new(hapax: &'a Hapax, scope: &'a ReplayScope) -> Self {
        let none = Digest::of(b"");
        let found = ReplayReport {
            key: Key::from_bytes([0; 32]),
            operations: 0,
            executed: 0,
            skipped: 0,
            elsewhere: 0,
            expected: none,
            actual: none,
            lineage: none,
            divergences: Vec::new(),
        };
        let (documents, collections) = (BTreeMap::new(), Collections::default());
        Self { hapax, scope, found, documents, collections }
    }

    /// Reads the journal in order, and calls `look` for each success in scope.
    async fn read(
        &mut self,
        mut look: impl AsyncFnMut(
            &mut Self,
            Run,
            u64,
            Option<Product>,
            Option<Digest>,
        ) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut fold, mut after) = (Fold::default(), 0);
        loop {
            let page = self.hapax.journal().entries(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.id;
            for entry in &page {
                let Some(moment) = fold.push(entry) else { continue };
                let ours = moment.run.namespace == *self.hapax.namespace();
                if !ours || !self.scope.has(&moment.run) {
                    continue;
                }
                let event = canonical(&openlineage::event(&moment, PRODUCER)).unwrap_or_default();
                chain(&mut self.found.lineage, &event);
                if self.scope.catalog.is_some() {
                    for (place, text) in catalog::documents(&moment) {
                        self.expect_document(place, &text, &moment);
                    }
                    if self.scope.is_all() {
                        self.collections.add(&moment);
                    }
                }
                if let RunChange::Complete { product, digest } = moment.change {
                    if self.is_superseded(&moment.run).await? {
                        self.found.skipped += 1;
                        continue;
                    }
                    self.found.operations += 1;
                    look(self, moment.run, moment.mark.entry, product, digest).await?;
                }
            }
        }
    }

    /// Whether the record was cleared since: the outputs may be gone, or made anew.
    async fn is_superseded(&self, run: &Run) -> Result<bool, Error> {
        Ok(match self.hapax.effects().show(run.key).await? {
            Some(effect) => {
                effect.generation != run.generation || effect.state.name() == StateName::Failed
            }
            None => true,
        })
    }

    /// Compares the outcome that a repeated call would get with the one that was recorded.
    async fn compare_outcome(
        &mut self,
        run: &Run,
        entry: u64,
        digest: Option<Digest>,
    ) -> Result<(), Error> {
        let Some(expected) = digest else { return Ok(()) };
        let actual = match self.hapax.effects().show(run.key).await?.map(|effect| effect.state) {
            Some(State::Succeeded(outcome)) => match outcome.body() {
                Some(body) => Some(Digest::of(body)),
                None => Some(outcome.digest()),
            },
            _ => None,
        };
        let (expected, actual) = (expected.to_string(), actual.map(|digest| digest.to_string()));
        self.compare(
            run,
            entry,
            Discrepancy { what: "outcome", which: "the result".into(), expected, actual },
        );
        Ok(())
    }

    fn compare_output(
        &mut self,
        run: &Run,
        entry: u64,
        artifact: &Artifact,
        path: Option<PathBuf>,
    ) {
        let Some(path) = path else {
            self.found.elsewhere += 1;
            return;
        };
        let actual = checksum(&path);
        let same = actual.as_ref() == Some(&artifact.checksum);
        self.compare(
            run,
            entry,
            Discrepancy::new("output", &artifact.uri, &artifact.checksum, actual),
        );
        let Some(size) = artifact.size else { return };
        let actual = std::fs::metadata(&path).ok().map(|meta| meta.len().to_string());
        let differs = Discrepancy::new("size", &artifact.uri, &size.to_string(), actual);
        match same {
            true => self.compare(run, entry, differs),
            // A changed file has another size, and its checksum is reported already.
            false => self.chain(&differs),
        }
    }

    fn expect_document(&mut self, place: String, text: &str, moment: &Moment) {
        let what = (moment.run.clone(), moment.mark.entry, Digest::of(text.as_bytes()));
        self.documents.insert(place, what);
    }

    /// Compares the files of the catalog with those that follow from the journal.
    fn compare_catalog(&mut self) {
        let Some(root) = &self.scope.catalog else { return };
        for (place, text, last) in std::mem::take(&mut self.collections).files() {
            self.expect_document(place, &text, last);
        }
        for (place, (run, entry, expected)) in std::mem::take(&mut self.documents) {
            let actual = checksum(&root.join(&place));
            let differs = Discrepancy::new("document", &place, &expected.to_string(), actual);
            self.compare(&run, entry, differs);
        }
    }

    fn compare(&mut self, run: &Run, entry: u64, differs: Discrepancy) {
        self.chain(&differs);
        if differs.actual.as_ref() != Some(&differs.expected) {
            self.diverge(run, entry, differs);
        }
    }

    fn chain(&mut self, differs: &Discrepancy) {
        chain(&mut self.found.expected, &differs.expected);
        chain(&mut self.found.actual, differs.actual.as_deref().unwrap_or_default());
    }

    fn diverge(&mut self, run: &Run, entry: u64, differs: Discrepancy) {
        let Discrepancy { what, which, expected, actual } = differs;
        if self.found.divergences.len() < MOST {
            let divergence = Divergence { key: run.key, entry, what, which, expected, actual };
            self.found.divergences.push(divergence);
        }
    }

    /// Records the result as an effect of its own.
    async fn record(mut self, mode: &'static str) -> Result<ReplayReport, Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| Error::Invalid(error.to_string()))?;
        self.found.key = Key::derive("replay.v1", &[("id", &id)])?;
        let document = self.found.document(mode);
        let effect = self.hapax.effect(self.found.key).label(format!("replay: {mode}"));
        let effect = effect.safety(Safety::Transactional);
        effect.run(|_| async { Ok::<_, Failure>(document) }).await?;
        Ok(self.found)
    }
}

impl ReplayReport {
    /// The document that is recorded.
    pub fn document(&self, mode: &str) -> String {
        let divergence = |divergence: &Divergence| {
            Object::default()
                .text("key", divergence.key.to_string().as_str())
                .number("entry", divergence.entry)
                .text("what", divergence.what)
                .text("which", divergence.which.as_str())
                .text("expected", divergence.expected.as_str())
                .text("actual", divergence.actual.as_deref())
                .json()
        };
        Object::default()
            .text("kind", "replay.v1")
            .text("mode", mode)
            .number("operations", self.operations)
            .number("executed", self.executed)
            .number("skipped", self.skipped)
            .number("elsewhere", self.elsewhere)
            .text("expected", self.expected.to_string().as_str())
            .text("actual", self.actual.to_string().as_str())
            .text("lineage", self.lineage.to_string().as_str())
            .with("divergences", Json::Array(self.divergences.iter().map(divergence).collect()))
            .print()
    }
}

/// The producer that lineage names.
pub const PRODUCER: &str = concat!("urn:hapax:pipeline:", env!("CARGO_PKG_VERSION"));

fn chain(digest: &mut Digest, text: &str) {
    *digest = Digest::of(&[digest.as_bytes(), text.as_bytes()].concat());
}

/// The path of a recorded file, if it is on this machine.
fn local(files: &Path, uri: &str) -> Option<PathBuf> {
    match uri.strip_prefix("file://") {
        Some(path) => Some(PathBuf::from(path)),
        None => (!uri.is_empty() && !uri.contains("://")).then(|| files.join(uri)),
    }
}

/// The name of the sandbox directory of an operation.
pub(crate) fn room(operation: Key, generation: u32) -> String {
    format!("{}-{generation}", operation.to_string().replace(':', "-"))
}

/// The path, if it is relative and stays below its directory.
pub(crate) fn inside(uri: &str) -> Option<&Path> {
    let path = Path::new(uri);
    let stays =
        path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (stays && !uri.is_empty() && !uri.contains("://")).then_some(path)
}

/// The checksum of a file, `sha256:<hex>`; `None` if it cannot be read.
pub fn checksum(path: &Path) -> Option<String> {
    use sha2::{Digest as _, Sha256};
    let mut file = std::fs::File::open(path).ok()?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match std::io::Read::read(&mut file, &mut buffer).ok()? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    Some(format!("sha256:{}", data_encoding::HEXLOWER.encode(&hash.finalize())))
}
