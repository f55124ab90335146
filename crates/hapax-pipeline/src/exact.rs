//! Fields that are recorded verbatim: the fields of keys, versions, checksums, media types, event
//! names. They cannot be masked, so none of them may name a place where the dataset is masked. An
//! error has the name of such a field, never its value.

use hapax::outbox::{Event, Order};

use crate::mask::mask_text;
use crate::operation::Operation;
use crate::run::Artifact;
use crate::work::WorkResult;

/// Checks the fields of an operation on a dataset that is masked to this resolution.
pub(crate) fn check_operation(operation: &Operation, resolution: u8) -> Result<(), String> {
    let checksums = operation.inputs.iter().filter_map(|input| input.checksum.as_ref());
    held("", operation.named(), resolution)?;
    held("inputs: ", checksums.map(|checksum| ("checksum", checksum)), resolution)
}

/// Checks the fields of its result.
pub(crate) fn made(made: &WorkResult, resolution: u8) -> Result<(), String> {
    for (nth, output) in made.outputs.iter().enumerate() {
        let Artifact { dataset, version, checksum, media_type, .. } = output;
        let names = [("dataset", dataset), ("version", version), ("checksum", checksum)];
        let kind = media_type.iter().map(|kind| ("media_type", kind));
        held(&format!("outputs {nth}: "), names.into_iter().chain(kind), resolution)?;
    }
    for (nth, event) in made.events.iter().enumerate() {
        let Event { name, dataset, pipeline, version, order, artifact, .. } = event;
        let order = match order {
            Order::Key(key) => Some(key),
            Order::Dataset | Order::Free => None,
        };
        let names = [
            ("name", Some(name)),
            ("dataset", Some(dataset)),
            ("pipeline", pipeline.as_ref()),
            ("version", version.as_ref()),
            ("order", order),
            ("artifact version", artifact.as_ref().map(|artifact| &artifact.version)),
            ("artifact checksum", artifact.as_ref().map(|artifact| &artifact.checksum)),
        ];
        let names = names.into_iter().filter_map(|(name, text)| Some((name, text?)));
        held(&format!("events {nth}: "), names, resolution)?;
    }
    Ok(())
}

fn held<'a>(
    of: &str,
    fields: impl IntoIterator<Item = (&'static str, &'a String)>,
    resolution: u8,
) -> Result<(), String> {
    let mut fields = fields.into_iter();
    match fields.find(|(_, text)| mask_text(text, resolution) != **text) {
        Some((name, _)) => Err(format!("{of}{name}: it names an exact place of a masked dataset")),
        None => Ok(()),
    }
}
