//! Items and mutations: automations that can be retried, repaired and trusted.
//!
//! A **workflow** is a script that goes through **items**, one after the other, and changes
//! something in the world for each of them through **tools**. Each change is a **mutation**: an
//! effect in the ledger, whose key names what is changed, and whose payload says how. However often
//! the script runs or is repaired, and wherever it is killed, each mutation happens once; if its
//! outcome cannot be found out, it is escalated to a person.
//!
//! | module | owns |
//! |---|---|
//! | `service` | workflows, one run at a time |
//! | `run`, `scope` | a run, and its current item |
//! | `bridge`, `sandbox` | scripts, and the world that they can reach |
//! | `tool` | the seam to tools: the operations that scripts can call (`hapax-tools` has them) |
//! | `route` | the next step after a failure |
//! | `reconcile` | looking up unknown outcomes |
//! | `escalation`, `notice`, `decision`, `manual_result` | questions to a person, their events, decisions and results |
//! | `due`, `schedule` | runs that ought to be under way |
//! | `repair` | better scripts, and whether they may be used (`hapax-script` compares them) |

mod applied_mutations;
mod bridge;
mod class;
mod decision;
mod due;
mod error;
mod escalation;
mod identity;
mod ledger;
mod manual_result;
mod note;
mod notice;
mod overview;
mod reconcile;
mod repair;
mod route;
mod run;
mod sandbox;
mod schedule;
mod scope;
mod script;
mod script_threads;
mod service;
mod state;
mod stop;
mod tool;
mod unfinished;
mod version;

pub use class::Class;
pub use decision::Action;
pub use due::Due;
pub use error::Error;
pub use escalation::{Escalation, Escalations, MutationExplanation};
pub use ledger::{ItemView, MutationView, RunView};
pub use note::{FailureRecord, StoppedMutation};
pub use notice::NEEDS_ATTENTION;
pub use overview::ItemPage;
pub use reconcile::Reconciled;
pub use repair::{MAINTAINER, MAX_PROPOSAL, Maintainer, PLANNER, Program, Repair, differences};
pub use route::{BudgetUsage, EscalationCause, FailureBudget, NextStep, route};
pub use run::Run;
pub use sandbox::Limits;
pub use scope::Item;
pub use script::{MAX_SCRIPT, RepairDetails, Script, VersionStatus};
pub use service::{CompletedRun, Items, Settings};
pub use state::{ItemState, MutationState};
pub use tool::{Call, Difference, Operation, Plan, Tool, ToolError};
pub use version::Version;

/// TypeScript declarations of the functions that scripts can use. Tools have declarations of their
/// own.
pub const TYPES: &str = include_str!("sandbox/types.d.ts");
