//! Items and mutations: automations that can be retried, repaired and trusted.
//!
//! A **workflow** is a script that goes through **items**, one after the other, and changes
//! something in the world for each of them through **tools**. Each change is a **mutation**: an
//! effect of the ledger's, whose key says what is changed, and whose payload says how. However often
//! the script runs, whoever repairs it, and wherever it is killed, each mutation happens once; if
//! nobody can tell whether it did, a person is asked.
//!
//! | module | owns |
//! |---|---|
//! | `service` | workflows, one run at a time |
//! | `run`, `scope` | a run, and the item it is at |
//! | `bridge`, `sandbox` | scripts, and what they can reach |
//! | `tool`, `tools` | what can be done to the world |
//! | `route` | what a failure leads to |
//! | `reconcile` | looking for what may have happened |
//! | `escalation`, `notice`, `decision`, `told` | what a person is asked, hears, decides, and says came of a mutation |
//! | `due`, `schedule` | runs that ought to be under way |
//! | `repair`, `construction` | better scripts, and whether they may be used |

mod bridge;
mod class;
pub mod construction;
mod crew;
mod decision;
mod due;
mod error;
mod escalation;
mod identity;
mod ledger;
mod left;
mod note;
mod notice;
mod overview;
mod past;
mod reconcile;
mod repair;
mod route;
mod run;
mod sandbox;
mod schedule;
mod scope;
mod script;
mod service;
mod state;
mod stop;
mod told;
mod tool;
pub mod tools;
mod version;

pub use class::Class;
pub use decision::Action;
pub use due::Due;
pub use error::Error;
pub use escalation::{Escalation, Escalations, Explained};
pub use ledger::{ItemView, MutationView, RunView};
pub use note::{About, Failure};
pub use notice::NEEDS_ATTENTION;
pub use overview::Page;
pub use reconcile::Reconciled;
#[cfg(feature = "http")]
pub use repair::{Endpoint, EndpointSettings};
pub use repair::{MAINTAINER, Maintainer, PLANNER, Program, Repair, differences};
pub use route::{Because, Budget, Next, Spent, route};
pub use run::Run;
pub use sandbox::Limits;
pub use scope::Item;
pub use script::{MAX_SCRIPT, Repaired, Script, Standing};
pub use service::{Items, Ran, Settings};
pub use state::{ItemState, MutationState};
pub use tool::{Call, Difference, Operation, Plan, Tool, ToolError};
pub use tools::{Database, Kv, Sql};
pub use version::Version;

/// What scripts can use, for TypeScript.
pub const TYPES: &str = include_str!("sandbox/types.d.ts");
