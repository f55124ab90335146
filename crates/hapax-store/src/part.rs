//! Parts: effects that belong to a whole.

use hapax_core::name::{Name, Namespace};
use hapax_core::part::{Part, PartFilter, PartRecord};

use crate::error::StoreError;
use crate::limits::{Limits, check_length};

/// The reads of parts.
pub trait PartView {
    /// The part that an effect is, if it is one.
    fn part(&mut self, name: &Name) -> Result<Option<Part>, StoreError>;

    /// Parts, each with its effect.
    fn parts(
        &mut self,
        namespace: &Namespace,
        filter: &PartFilter,
    ) -> Result<Vec<PartRecord>, StoreError>;
}

/// The writes of parts.
pub trait PartTxn {
    /// Writes the part of an existing effect. A part keeps its first place. An effect is a part
    /// from its first claim on, or never: one that becomes a part later may have the place of its
    /// claim or of that moment.
    fn put_part(&mut self, name: &Name, part: &Part) -> Result<(), StoreError>;
}

pub(crate) fn check(part: Option<&Part>) -> Result<(), StoreError> {
    let Some(part) = part else { return Ok(()) };
    check_length("the kind", &part.kind)?;
    match part.body.len() {
        size if size > Limits::PART => {
            let most = Limits::PART;
            Err(StoreError::Invalid(format!("a part of {size} bytes; at most {most} are kept")))
        }
        _ => Ok(()),
    }
}
