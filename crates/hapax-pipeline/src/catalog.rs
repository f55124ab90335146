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

use hapax::json::Json;
use hapax::outbox::{Acks, Delivery, Retryability, Sink};

use crate::lineage::stac::Newest;
use crate::lineage::{Completed, dcat, names, prov, stac};
use crate::projector;
use crate::run::Moment;
use hapax::document::print;

/// A catalog in this directory.
#[derive(Debug, Clone)]
pub struct Catalog {
    root: PathBuf,
    /// Held while a collection is read and rewritten.
    one_at_a_time: Arc<Mutex<()>>,
}

impl Catalog {
    /// A catalog in this directory, which is made at the first write.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), one_at_a_time: Arc::default() }
    }

    /// Writes the files of a run that succeeded. Any other moment writes nothing.
    pub fn write(&self, moment: &Moment) -> std::io::Result<()> {
        let Some(done) = Completed::of(moment) else { return Ok(()) };
        let _alone = self.one_at_a_time.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (place, document) in documents(moment) {
            self.put(&place, &document)?;
        }
        for edition in &done.editions() {
            let dataset = edition.dataset;
            let newest = Newest::of(&done, dataset).or(self.newest(dataset));
            let document = stac::collection(&newest, dataset, &self.items(dataset)?);
            self.put(&collected(dataset), &lines(print(&document)))?;
        }
        Ok(())
    }

    /// The newest run that wrote to a collection, as the collection's file has it.
    fn newest(&self, dataset: &str) -> Option<Newest> {
        let bytes = std::fs::read(self.root.join(collected(dataset))).ok()?;
        Newest::read(&Json::parse(&bytes).ok()?)
    }

    /// The items that are in a collection now.
    fn items(&self, dataset: &str) -> std::io::Result<BTreeSet<String>> {
        let collection = self.root.join("stac").join(names::stac_collection(dataset));
        let entries = std::fs::read_dir(collection)?;
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        Ok(folders.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    /// Writes a file as a whole: a reader sees all of it or none.
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

/// The files that follow from this moment alone, and their texts: all but the collections.
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

/// The file of a collection.
fn collected(dataset: &str) -> String {
    format!("stac/{}/collection.json", names::stac_collection(dataset))
}

/// The collections of a catalog, by dataset: the items, the newest run, and the last moment that
/// was added.
#[derive(Debug, Default)]
pub(crate) struct Collections(BTreeMap<String, Collection>);

#[derive(Debug)]
struct Collection {
    items: BTreeSet<String>,
    newest: Newest,
    last: Moment,
}

impl Collections {
    /// Adds a moment.
    pub(crate) fn add(&mut self, moment: &Moment) {
        let Some(done) = Completed::of(moment) else { return };
        for edition in done.editions() {
            let newest = Newest::of(&done, edition.dataset);
            let item = names::stac_item(edition.dataset, edition.version);
            let collection = self.0.entry(edition.dataset.to_owned()).or_insert_with(|| {
                let (items, newest, last) = (BTreeSet::new(), newest.clone(), moment.clone());
                Collection { items, newest, last }
            });
            collection.items.insert(item);
            collection.newest = newest.or(Some(collection.newest.clone()));
            collection.last = moment.clone();
        }
    }

    /// The file of each collection, its text, and the last moment that was added.
    pub(crate) fn files(&self) -> impl Iterator<Item = (String, String, &Moment)> {
        self.0.iter().map(|(dataset, Collection { items, newest, last })| {
            let document = stac::collection(newest, dataset, items);
            (collected(dataset), lines(print(&document)), last)
        })
    }
}

fn lines(text: String) -> String {
    text + "\n"
}

impl Sink for Catalog {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        for (nth, delivery) in deliveries.iter().enumerate() {
            let moment = projector::moment(&delivery.record);
            let catalog = self.clone();
            let written = tokio::task::spawn_blocking(move || match moment {
                Some(moment) => catalog.write(&moment),
                None => Ok(()),
            });
            match written.await.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
                Ok(()) => acks.delivered(nth),
                Err(error) => {
                    let reason = format!("{}: {error}", self.root.display());
                    return acks.refused(nth, reason, Retryability::SinkDown);
                }
            }
        }
    }
}
