//! Runs a script to its end on the calling thread, against a host that answers at once.

use super::{Answer, ItemStart, Limits, RunEnd, Script, ScriptRequest, Stop, Tools};

/// The host of a script that is only tried. Never called from within the script.
pub(crate) trait Host {
    /// An item begins.
    fn begin(&mut self, id: &str, title: &str) -> Result<ItemStart, Stop>;

    /// The handler of the item is over, with this JSON value (`null` for undefined).
    fn end(&mut self, result: &str) -> Result<(), Stop>;

    /// A tool is called, with JSON arguments; answers with JSON.
    fn call(&mut self, tool: &str, operation: &str, arguments: &str) -> Result<String, Stop>;

    /// A line for the log.
    fn log(&mut self, line: &str);
}

/// Runs a script to its end.
pub(crate) fn run(
    source: &str,
    name: &str,
    tools: Tools,
    started_ms: i64,
    limits: &Limits,
    host: &mut dyn Host,
) -> RunEnd {
    let mut script = match Script::start(source, name, tools, started_ms, limits) {
        Ok(script) => script,
        Err(ended) => return ended,
    };
    let mut answer = Answer::Nothing;
    loop {
        let answered = match script.next(answer) {
            ScriptRequest::Over(ended) => return ended,
            ScriptRequest::Log(line) => {
                host.log(&line);
                Ok(Answer::Nothing)
            }
            ScriptRequest::Begin { id, title } => host.begin(&id, &title).map(Answer::ItemStart),
            ScriptRequest::Call { tool, operation, arguments } => {
                let (tool, operation) = script.tools().name(tool, operation);
                host.call(tool, operation, &arguments).map(Answer::Json)
            }
            ScriptRequest::End { result } => host.end(&result).map(|()| Answer::Nothing),
        };
        answer = match answered {
            Ok(answer) => answer,
            Err(Stop) => return RunEnd::Stopped,
        };
    }
}
