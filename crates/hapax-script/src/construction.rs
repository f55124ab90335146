//! How a script names things: what its item ids and subkeys are built from, and the tools that it
//! uses.

use std::collections::{BTreeMap, HashSet};

use crate::alignment::{ElementChange, align};
use crate::difference::{Difference, contrast, whole};
use crate::hidden::Hidden;
use crate::normal_form::payload;
use crate::script::{Callee, Script};
use crate::subkey;
use crate::syntax::Unreadable;
use crate::trace::{Piece, Trace, question};

/// Scripts with more items and tool calls than this are refused.
const CALLS: usize = 2000;

/// How a script names things, as far as its syntax tree shows.
#[derive(Debug, Clone)]
pub struct Construction {
    /// Every call of withItem, in order.
    items: Vec<Item>,
    /// Every question to a tool, anywhere in the script.
    questions: HashSet<String>,
    /// Every call of a tool, by tool and operation, in order.
    calls: BTreeMap<(String, String), Vec<Call>>,
    hidden: Hidden,
}

#[derive(Debug, Clone)]
struct Item {
    id: Vec<Piece>,
    line: usize,
}

#[derive(Debug, Clone)]
struct Call {
    /// Empty if it has none.
    subkey: Vec<Piece>,
    /// Everything else that the tool is given.
    payload: String,
    /// The item it is written in, counted from the first, if it is written in one.
    item: Option<usize>,
    line: usize,
}

impl Construction {
    /// Reads a script. `tools` are the names of the tools that exist.
    pub fn of(script: &str, tools: &[&str]) -> Result<Self, Unreadable> {
        let script = Script::of(script, tools)?;
        let mut construction = Self {
            items: Vec::new(),
            questions: HashSet::new(),
            calls: BTreeMap::new(),
            hidden: Hidden::of(&script),
        };
        let syntax = &script.syntax;
        let calls = syntax.all().filter(|node| syntax.kind(*node) == "call_expression");
        let mut count = 0;
        let mut opened = Vec::new();
        for node in calls {
            let line = syntax.line(node);
            match script.callee(node) {
                Callee::Item => {
                    let Some(id) = script.arguments(node).first().copied() else { continue };
                    let id = Trace::of(&script, syntax.bare(id), None);
                    construction.items.push(Item { id, line });
                    opened.push(node);
                }
                Callee::Tool(tool, operation) => {
                    let subkey = subkey::subkey(&script, node);
                    construction.questions.insert(question(&script, node));
                    let item = opened.iter().rposition(|item| syntax.contains(*item, node));
                    let call = Call { subkey, payload: payload(&script, node), item, line };
                    construction.calls.entry((tool, operation)).or_default().push(call);
                }
                _ => continue,
            }
            count += 1;
            if count > CALLS || script.is_exhausted() {
                let what = "too many or too entangled items and tool calls".into();
                return Err(Unreadable { line, column: 1, what });
            }
        }
        if script.is_exhausted() {
            let what = "too entangled to follow".into();
            return Err(Unreadable { line: 1, column: 1, what });
        }
        Ok(construction)
    }

    /// Everything that keeps `self` from taking the place of `before`; empty if nothing does.
    pub fn differences(&self, before: &Self) -> Vec<Difference> {
        let mut differences = self.items_against(before);
        let same_items = self.items.len() == before.items.len();
        for (name, old) in &before.calls {
            let new = self.calls.get(name).map(Vec::as_slice).unwrap_or_default();
            differences.extend(before.calls_against(name, old, new, same_items));
        }
        differences.extend(self.tools_against(before));
        differences.extend(self.hidden_against(before));
        differences
    }

    /// The tools and operations that are used, sorted.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &str)> {
        self.calls.keys().map(|(tool, operation)| (tool.as_str(), operation.as_str()))
    }

    /// Whether an id or subkey of this script is built the same in another.
    ///
    /// The arguments of tool calls may differ. But a changed call must not send a request that this
    /// script sends already: its answer would take the place of another.
    fn builds_like(&self, mine: &[Piece], other: &[Piece]) -> bool {
        let same = |(mine, other): (&Piece, &Piece)| {
            let mut questions = mine.questions.iter().zip(&other.questions);
            mine.normal_form == other.normal_form
                && questions.all(|(mine, other)| mine == other || !self.questions.contains(other))
        };
        mine.len() == other.len() && mine.iter().zip(other).all(same)
    }

    fn items_against(&self, before: &Self) -> Vec<Difference> {
        let changes = align(before.items.len(), self.items.len(), |i, j| {
            before.builds_like(&before.items[i].id, &self.items[j].id).into()
        });
        let difference = |change| match change {
            ElementChange::Kept(..) => None,
            ElementChange::Changed(i, j) => {
                let (before, after) = contrast(&before.items[i].id, &self.items[j].id);
                Some(Difference::ItemId { before, after, line: self.items[j].line })
            }
            ElementChange::Added(j) => {
                let Item { id, line } = &self.items[j];
                Some(Difference::ItemAdded { id: whole(id), line: *line })
            }
            ElementChange::Removed(i) => {
                let Item { id, line } = &before.items[i];
                Some(Difference::ItemRemoved { id: whole(id), line: *line })
            }
        };
        changes.into_iter().filter_map(difference).collect()
    }

    /// Compares the calls of one operation. Added calls, and removed calls without a subkey, are no
    /// difference as long as the other calls stay exactly as they were. Otherwise a subkey could
    /// move to another call unseen.
    fn calls_against(
        &self,
        name: &(String, String),
        old: &[Call],
        new: &[Call],
        same_items: bool,
    ) -> Vec<Difference> {
        let (tool, operation) = name;
        let changes = align(old.len(), new.len(), |i, j| {
            // Matches calls with the same subkey first, then prefers those with the same payload.
            let alike = u32::from(old[i].payload == new[j].payload);
            if self.builds_like(&old[i].subkey, &new[j].subkey) { 10_000 + alike } else { 0 }
        });
        let subkey = |before, after, line| Difference::Subkey {
            tool: tool.clone(),
            operation: operation.clone(),
            before,
            after,
            line,
        };
        let shown = |call: &Call| (!call.subkey.is_empty()).then(|| whole(&call.subkey));
        let keyed = old.iter().chain(new).any(|call| !call.subkey.is_empty());
        let entangled = keyed && old.len() != new.len();
        let mut differences = Vec::new();
        for change in changes {
            match change {
                ElementChange::Kept(i, j) => {
                    let (tool, operation) = (tool.clone(), operation.clone());
                    let line = new[j].line;
                    if entangled && old[i].payload != new[j].payload {
                        differences.push(Difference::Calls { tool, operation, line });
                    } else if same_items && moved(&old[i], &new[j]) {
                        differences.push(Difference::Moved { tool, operation, line });
                    }
                }
                ElementChange::Changed(i, j) => {
                    let both = !old[i].subkey.is_empty() && !new[j].subkey.is_empty();
                    let (before, after) =
                        match both.then(|| contrast(&old[i].subkey, &new[j].subkey)) {
                            Some((before, after)) => (Some(before), Some(after)),
                            None => (shown(&old[i]), shown(&new[j])),
                        };
                    differences.push(subkey(before, after, new[j].line));
                }
                ElementChange::Removed(i) if !old[i].subkey.is_empty() => {
                    differences.push(subkey(shown(&old[i]), None, old[i].line));
                }
                ElementChange::Removed(_) | ElementChange::Added(_) => {}
            }
        }
        differences
    }

    fn tools_against(&self, before: &Self) -> Vec<Difference> {
        let mut differences = Vec::new();
        for ((tool, operation), calls) in &self.calls {
            if before.calls.contains_key(&(tool.clone(), operation.clone())) {
                continue;
            }
            let known = before.calls.keys().any(|(known, _)| known == tool);
            let operation = known.then(|| operation.clone());
            let line = calls.first().map(|call| call.line).unwrap_or_default();
            let is_listed = differences.iter().any(|difference| {
                matches!(difference, Difference::NewTool { tool: listed, .. } if listed == tool)
            });
            if operation.is_some() || !is_listed {
                differences.push(Difference::NewTool { tool: tool.clone(), operation, line });
            }
        }
        differences
    }

    fn hidden_against(&self, before: &Self) -> Vec<Difference> {
        let hidden =
            |(what, line): &(String, usize)| Difference::Hidden { what: what.clone(), line: *line };
        let mut differences: Vec<_> = self.hidden.found.iter().map(hidden).collect();
        // If the script before hides something, nothing can be compared with it.
        let gone =
            |(what, _): &&(String, usize)| self.hidden.found.iter().all(|(known, _)| known != what);
        differences.extend(before.hidden.found.iter().filter(gone).map(|(what, line)| {
            let what = format!("in the script before, {what}");
            Difference::Hidden { what, line: *line }
        }));
        if self.hidden.imports != before.hidden.imports {
            let what = "the imports are others than before".into();
            differences.push(Difference::Hidden { what, line: 1 });
        }
        for (name, line) in &self.hidden.foreign {
            if !before.hidden.foreign.contains_key(name) {
                let what = format!("the global `{name}` was not used before");
                differences.push(Difference::Hidden { what, line: *line });
            }
        }
        differences
    }
}

/// A call outside of items may belong to a function that an item calls, so it never counts as
/// moved.
fn moved(before: &Call, after: &Call) -> bool {
    before.item.zip(after.item).is_some_and(|(before, after)| before != after)
}
