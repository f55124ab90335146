//! A script on a script thread, and the run that it belongs to.
//!
//! The script sends a request and waits; the run answers. The script's thread looks up recorded
//! mutations and performs new ones itself, so dropping the run interrupts no mutation.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use hapax::json::Json;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::run::{Run, nested, now_ms, outside};
use crate::sandbox::{Answer, ItemStart, Limit, RunEnd, Script, ScriptRequest, Stop};
use crate::scope::{Item, Recall};
use crate::script_threads::ScriptThreads;
use crate::service::Settings;
use crate::stop::{StopReason, Stopped};
use crate::tool::Tool;

/// A request from the script to its run.
enum Request {
    Begin { id: String, title: String, reply: oneshot::Sender<Item> },
    Read { tool: Arc<dyn Tool>, operation: String, arguments: Json, reply: oneshot::Sender<Json> },
    End { result: Json, reply: oneshot::Sender<()> },
    Over(RunEnd),
}

/// Starts a script and answers its requests until it ends. If the caller drops the run, the script
/// ends with its next step.
pub(crate) async fn execute(
    run: Run,
    settings: Arc<Settings>,
    source: String,
    threads: Arc<ScriptThreads>,
) -> Result<(), Stopped> {
    let (sender, mut requests) = mpsc::channel(1);
    let (script, runtime) =
        (Bridge { run: run.clone(), requests: sender, item: None }, Handle::current());
    threads.carry(move || within(runtime, script.play(settings, source)));
    loop {
        match requests.recv().await {
            Some(Request::Begin { id, title, reply }) => {
                let mut done = None;
                let worked = run
                    .try_item(&id, &title, |item| {
                        serve(&run, item, &mut requests, reply, &mut done)
                    })
                    .await;
                worked?;
                run.leave_item();
                if let Some(reply) = done {
                    let _ = reply.send(());
                }
            }
            Some(Request::Read { tool, operation, arguments, reply }) => {
                let _ = reply.send(run.read(&*tool, &operation, &arguments).await?);
            }
            Some(Request::End { .. }) => {}
            Some(Request::Over(RunEnd::Completed)) => return Ok(()),
            Some(Request::Over(ended)) => return Err(stopped(&run, ended)),
            None => return Err(run.stop(StopReason::logic("the script's thread is gone"))),
        }
    }
}

/// Answers a script while an item is open.
async fn serve(
    run: &Run,
    item: Item,
    requests: &mut mpsc::Receiver<Request>,
    begun: oneshot::Sender<Item>,
    done: &mut Option<oneshot::Sender<()>>,
) -> Result<Json, Stopped> {
    let _ = begun.send(item.clone());
    loop {
        match requests.recv().await {
            Some(Request::Read { tool, operation, arguments, reply }) => {
                let _ = reply.send(run.read(&*tool, &operation, &arguments).await?);
            }
            Some(Request::End { result, reply }) => {
                *done = Some(reply);
                return Ok(result);
            }
            Some(Request::Begin { id, .. }) => return Err(run.stop(nested(&id))),
            Some(Request::Over(ended)) => return Err(stopped(run, ended)),
            None => return Err(run.stop(StopReason::logic("the script's thread is gone"))),
        }
    }
}

/// Why a script came to its end before the run did.
fn stopped(run: &Run, ended: RunEnd) -> Stopped {
    run.stop(match ended {
        RunEnd::Completed => StopReason::logic("the script ended inside of an item"),
        RunEnd::Stopped => StopReason::logic("the run is over"),
        RunEnd::Threw { message, stack, .. } => {
            let place = stack.lines().next().map(str::trim).filter(|place| !place.is_empty());
            let message = place.map_or(message.clone(), |place| format!("{message}, {place}"));
            StopReason { stack: Some(stack), ..StopReason::logic(message) }
        }
        RunEnd::Limit { which, .. } => StopReason::logic(match which {
            Limit::Time => "the script ran for too long",
            Limit::Memory => "the script used too much memory",
            Limit::Stack => "the script went too deep",
            Limit::Calls => "the script called tools too often",
            Limit::Message => "the script passed something that is too large",
        }),
        RunEnd::Stuck { nested: true } => {
            StopReason::logic("withItem inside of another withItem: one item after the other")
        }
        RunEnd::Stuck { nested: false } => {
            StopReason::logic("the script waits for something that never comes")
        }
        RunEnd::Unreadable(error) => {
            StopReason::logic(format!("the script cannot be read: {error}"))
        }
    })
}

/// Polls a future that needs a runtime, on a thread outside of that runtime.
async fn within<T>(runtime: Handle, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _inside = runtime.enter();
        work.as_mut().poll(context)
    })
    .await
}

/// A script yields its thread to the other scripts after this many answers.
const TURNS: u64 = 64;

/// Answers a script on the script's thread. Mutations and log lines are handled here. Items and
/// reads are requests to the task of the run.
struct Bridge {
    run: Run,
    requests: mpsc::Sender<Request>,
    item: Option<Item>,
}

impl Bridge {
    /// Runs a script to its end.
    async fn play(mut self, settings: Arc<Settings>, source: String) {
        let (name, limits) = (&settings.name, &settings.limits);
        let ended = match Script::start(&source, name, self.run.tools(), now_ms() as i64, limits) {
            Ok(mut script) => self.follow(&mut script).await,
            Err(ended) => ended,
        };
        let _ = self.requests.send(Request::Over(ended)).await;
    }

    /// Answers a script until it is over.
    async fn follow(&mut self, script: &mut Script) -> RunEnd {
        let (mut answer, mut turn) = (Answer::Nothing, 0_u64);
        loop {
            // The other scripts on this thread get their turn, even if every answer is ready at
            // once.
            turn += 1;
            if turn.is_multiple_of(TURNS) {
                tokio::task::yield_now().await;
            }
            let answered = match script.next(answer) {
                ScriptRequest::Over(ended) => return ended,
                ScriptRequest::Log(line) => {
                    self.run.log(&line);
                    Ok(Answer::Nothing)
                }
                ScriptRequest::Begin { id, title } => {
                    self.begin(id, title).await.map(Answer::ItemStart)
                }
                ScriptRequest::Call { tool, operation, arguments } => {
                    let (tool, operation) = script.tools().name(tool, operation);
                    self.call(tool, operation, &arguments).await.map(Answer::Json)
                }
                ScriptRequest::End { result } => self.end(&result).await.map(|()| Answer::Nothing),
            };
            answer = match answered {
                Ok(answer) => answer,
                Err(Stop) => return RunEnd::Stopped,
            };
        }
    }

    async fn request<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Stop> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| Stop)?;
        answer.await.map_err(|_| Stop)
    }

    async fn begin(&mut self, id: String, title: String) -> Result<ItemStart, Stop> {
        let item = self.request(|reply| Request::Begin { id, title, reply }).await?;
        let begun = ItemStart {
            is_done: item.is_done(),
            attempt: item.attempt(),
            now_ms: item.first_seen().0,
            seed: item.seed(),
        };
        self.item = Some(item);
        Ok(begun)
    }

    async fn end(&mut self, result: &str) -> Result<(), Stop> {
        self.item = None;
        let result = self.parse(result)?;
        self.request(|reply| Request::End { result, reply }).await
    }

    async fn call(&self, tool: &str, operation: &str, arguments: &str) -> Result<String, Stop> {
        let arguments = self.parse(arguments)?;
        let (found, mutates) = self.run.tool(tool, operation).map_err(|_| Stop)?;
        if !mutates {
            let (tool, operation) = (found, operation.to_owned());
            let request = |reply| Request::Read { tool, operation, arguments, reply };
            return self.request(request).await.map(|answer| hapax::document::print(&answer));
        }
        let Some(item) = &self.item else {
            self.run.stop(outside(tool, operation));
            return Err(Stop);
        };
        let result = match item.recall(found, operation, arguments).map_err(|_| Stop)? {
            Recall::Result(result) => result,
            Recall::LookUp(mutation) => item.perform(&mutation).await.map_err(|_| Stop)?,
        };
        String::from_utf8(result.to_vec()).map_err(|_| Stop)
    }

    fn parse(&self, text: &str) -> Result<Json, Stop> {
        Json::parse(text.as_bytes()).map_err(|error| {
            self.run.stop(StopReason::logic(format!("not JSON that can be kept: {error}")));
            Stop
        })
    }
}
