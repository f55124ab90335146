//! The documents of lineage: what they look like, and that other people's programs read them.

mod documents;
mod fixture;
mod software;
