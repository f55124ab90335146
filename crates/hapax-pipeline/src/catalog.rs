//! A catalog on disk: STAC, DCAT and PROV-O of everything that was made, as files.
//!
//! ```text
//!  stac/<dataset>/collection.json
//!  stac/<dataset>/<version>/<version>.json
//!  dcat/<run>.jsonld
//!  prov/<run>.jsonld, prov/<run>.ttl
//! ```
//!
//! Each file follows from the journal alone. Written again, from the outbox or from the journal, it
//! is the same to the byte.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hapax::outbox::{Heals, Letter, Sink, Told};

use crate::lineage::{Completed, dcat, names, prov, stac};
use crate::projector;
use crate::run::Moment;
use hapax::document::print;

/// A catalog in this directory.
#[derive(Debug, Clone)]
pub struct Catalog {
    root: PathBuf,
    /// A collection is read and written as a whole.
    one_at_a_time: Arc<Mutex<()>>,
}

impl Catalog {
    /// A catalog in this directory, which is made when there is something to write.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), one_at_a_time: Arc::default() }
    }

    /// Writes what is to be said of a moment: of what happened, and of nothing else.
    pub fn write(&self, moment: &Moment) -> std::io::Result<()> {
        let Some(done) = Completed::of(moment) else { return Ok(()) };
        let _alone = self.one_at_a_time.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (place, document) in documents(moment) {
            self.put(&place, &document)?;
        }
        for edition in &done.editions() {
            let collection = names::stac_collection(edition.dataset);
            let (place, document) = collected(&done, edition.dataset, &self.items(&collection)?);
            self.put(&place, &document)?;
        }
        Ok(())
    }

    /// The items that a collection has by now.
    fn items(&self, collection: &str) -> std::io::Result<BTreeSet<String>> {
        let entries = std::fs::read_dir(self.root.join("stac").join(collection))?;
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        Ok(folders.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    /// Writes a file as a whole: whoever reads it sees all of it or none.
    fn put(&self, place: &str, text: &str) -> std::io::Result<()> {
        let path = self.root.join(place);
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let aside = path.with_extension("part");
        let mut file = std::fs::File::create(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        std::fs::rename(&aside, &path)?;
        std::fs::File::open(folder)?.sync_all()
    }
}

/// The files that are of this moment alone, and what is in them: all but the collections.
pub(crate) fn documents(moment: &Moment) -> Vec<(String, String)> {
    let Some(done) = Completed::of(moment) else { return Vec::new() };
    let run = names::run_id(&moment.run);
    let mut documents = vec![
        (format!("prov/{run}.jsonld"), lines(print(&prov::json_ld(&done)))),
        (format!("prov/{run}.ttl"), lines(prov::turtle(&done))),
    ];
    let editions = done.editions();
    if !editions.is_empty() {
        documents.push((format!("dcat/{run}.jsonld"), lines(print(&dcat::json_ld(&done)))));
    }
    for edition in &editions {
        let collection = names::stac_collection(edition.dataset);
        let item = names::stac_item(edition.dataset, edition.version);
        let place = format!("stac/{collection}/{item}/{item}.json");
        documents.push((place, lines(print(&stac::item(&done, edition)))));
    }
    documents
}

/// The file of a collection that has these items, and what is in it, as of this moment.
fn collected(done: &Completed<'_>, dataset: &str, items: &BTreeSet<String>) -> (String, String) {
    let place = format!("stac/{}/collection.json", names::stac_collection(dataset));
    (place, lines(print(&stac::collection(done, dataset, items))))
}

/// The collections that a catalog has, by the moments it was told of: each dataset with its items
/// and with the last of its moments.
#[derive(Debug, Default)]
pub(crate) struct Collections(BTreeMap<String, (BTreeSet<String>, Option<Moment>)>);

impl Collections {
    /// Comes to know of one more moment.
    pub(crate) fn add(&mut self, moment: &Moment) {
        let Some(done) = Completed::of(moment) else { return };
        for edition in done.editions() {
            let (items, last) = self.0.entry(edition.dataset.to_owned()).or_default();
            items.insert(names::stac_item(edition.dataset, edition.version));
            *last = Some(moment.clone());
        }
    }

    /// The file of each, what is in it, and the moment it was last written at.
    pub(crate) fn files(&self) -> impl Iterator<Item = (String, String, &Moment)> {
        self.0.iter().filter_map(|(dataset, (items, last))| {
            let last = last.as_ref()?;
            let (place, text) = collected(&Completed::of(last)?, dataset, items);
            Some((place, text, last))
        })
    }
}

fn lines(text: String) -> String {
    text + "\n"
}

impl Sink for Catalog {
    async fn send(&self, letters: &[Letter], told: &Told) {
        for (nth, letter) in letters.iter().enumerate() {
            let moment = projector::moment(&letter.record);
            let catalog = self.clone();
            let written = tokio::task::spawn_blocking(move || match moment {
                Some(moment) => catalog.write(&moment),
                None => Ok(()),
            });
            match written.await.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
                Ok(()) => told.delivered(nth),
                Err(error) => {
                    let reason = format!("{}: {error}", self.root.display());
                    return told.refused(nth, reason, Heals::SinkDown);
                }
            }
        }
    }
}
