//! Lineage documents: their form, and programs of other projects that read them.

mod documents;
mod fixture;
mod software;
