//! STAC: an item for each version that a run made, a collection for each dataset.
//!
//! No geometry is published. Where a version is about known places, the item has their H3 cells.

use std::collections::BTreeSet;

use hapax::json::Json;

use super::{Completed, Edition, count, documents, index, names, owner};
use crate::run::Artifact;
use hapax::document::Object;

const VERSION: &str = "1.1.0";
const FILE_EXTENSION: &str = "https://stac-extensions.github.io/file/v2.1.0/schema.json";

/// The item of one of the [editions](Completed::editions) of a run that happened. Links are as in
/// a catalog of files: `<collection>/<item>/<item>.json`.
pub fn item(done: &Completed<'_>, edition: &Edition<'_>) -> Json {
    let assets =
        edition.artifacts.iter().enumerate().fold(Object::default(), |assets, (nth, artifact)| {
            match nth {
                0 => assets.with("data", asset(artifact)),
                _ => assets.with(&format!("data-{}", nth + 1), asset(artifact)),
            }
        });
    let collection = link("collection", "../collection.json", "application/json");
    Object::default()
        .text("type", "Feature")
        .text("stac_version", VERSION)
        .list("stac_extensions", [Json::text(FILE_EXTENSION)])
        .text("id", names::stac_item(edition.dataset, edition.version).as_str())
        .text("collection", names::stac_collection(edition.dataset).as_str())
        .with("geometry", Json::Null)
        .with("properties", properties(done, edition))
        .with("links", Json::Array(vec![collection]))
        .with("assets", assets.json())
        .json()
}

/// The newest run that wrote to a collection, in whichever order the runs arrive.
#[derive(Debug, Clone, PartialEq)]
pub struct Newest {
    at: String,
    providers: Option<Json>,
}

impl Newest {
    /// This run, as it is recorded for a dataset that it wrote to.
    pub fn of(done: &Completed<'_>, dataset: &str) -> Self {
        Self { at: names::time(done.end.at), providers: provider(done, dataset) }
    }

    /// The newest run of a collection that was written before.
    pub fn read(collection: &Json) -> Option<Self> {
        let first = |json: &Json| match json {
            Json::Array(members) => members.first().cloned(),
            _ => None,
        };
        let interval = collection.get("extent")?.get("temporal")?.get("interval");
        let Json::Array(edges) = first(interval?)? else { return None };
        let at = edges.get(1)?.as_str()?.to_owned();
        Some(Self { at, providers: collection.get("providers").and_then(first) })
    }

    /// The newer of two; `self` if both are as new.
    pub fn or(self, other: Option<Self>) -> Self {
        other.filter(|other| other.at > self.at).unwrap_or(self)
    }
}

/// The collection of a dataset with these items.
pub fn collection(newest: &Newest, dataset: &str, items: &BTreeSet<String>) -> Json {
    let links = items.iter();
    let links = links.map(|id| link("item", &format!("./{id}/{id}.json"), "application/geo+json"));
    // A collection has to have an extent, and places are not published, so the extent is the world.
    let world = ["-180", "-90", "180", "90"].map(|edge| Json::parse(edge.as_bytes()));
    let world = world.into_iter().flatten().collect();
    let until = Json::Array(vec![Json::Null, Json::text(&newest.at)]);
    let extent = |name: &str, value: Json| Json::object([(name, Json::Array(vec![value]))]);
    Object::default()
        .text("type", "Collection")
        .text("stac_version", VERSION)
        .text("id", names::stac_collection(dataset).as_str())
        .text("title", dataset)
        .text("description", format!("The versions of {dataset}.").as_str())
        .text("license", "other")
        .list("providers", newest.providers.clone())
        .with(
            "extent",
            Json::object([
                ("spatial", extent("bbox", Json::Array(world))),
                ("temporal", extent("interval", until)),
            ]),
        )
        .with("links", Json::Array(links.collect()))
        .json()
}

fn properties(done: &Completed<'_>, edition: &Edition<'_>) -> Json {
    let documents = documents(done.run, done.end, Some(std::slice::from_ref(edition)));
    let cells = edition.artifacts.iter().flat_map(|artifact| &artifact.cells);
    Object::default()
        .text("datetime", names::time(done.end.at).as_str())
        .text("title", format!("{} {}", edition.dataset, edition.version).as_str())
        .list("providers", provider(done, edition.dataset))
        .text("hapax:dataset", edition.dataset)
        .text("hapax:version", edition.version)
        .text("hapax:key", done.run.key.to_string().as_str())
        .text("hapax:run_id", names::run_id(done.run).as_str())
        .with("hapax:sovereignty_event", Json::Bool(done.run.about.terms.sovereign))
        .with("hapax:documents", index(Object::default(), &documents))
        .list("hapax:h3_cells", cells.map(|cell| Json::text(cell)))
        .json()
}

fn provider(done: &Completed<'_>, dataset: &str) -> Option<Json> {
    owner(done.run, dataset).map(|owner| Json::object([("name", Json::text(owner))]))
}

fn asset(artifact: &Artifact) -> Json {
    // A multihash: 0x12 for SHA-256, 0x20 for its 32 bytes.
    let checksum = names::sha256(&artifact.checksum).map(|hex| format!("1220{hex}"));
    Object::default()
        .text("href", names::location(&artifact.uri).as_str())
        .text("type", artifact.media_type.as_deref())
        .list("roles", [Json::text("data")])
        .text("file:checksum", checksum.as_deref())
        .with("file:size", artifact.size.map(count))
        .json()
}

fn link(rel: &str, href: &str, media_type: &str) -> Json {
    Json::object([
        ("rel", Json::text(rel)),
        ("href", Json::text(href)),
        ("type", Json::text(media_type)),
    ])
}
