//! Items and mutations, as scripts and people see them.

mod actions;
mod due;
mod failures;
mod hostile;
mod late;
mod repairs;
mod replay;
mod states;
mod unknown;
mod world;
