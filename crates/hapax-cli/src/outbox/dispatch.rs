//! `hapax outbox dispatch`: deliver, until a signal stops it.

use std::time::Duration;

use hapax::Hapax;
use hapax_pipeline::projector::Projector;

use crate::args::{Dispatch, Global, LogFormat};
use crate::config::Config;
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::{log, output, stop};

/// How long to wait before the journal is read again.
const PAUSE: Duration = Duration::from_millis(500);

/// Emits lineage events for the operations in the journal: for ever, or once until none is left.
pub(crate) async fn project(hapax: &Hapax, once: bool) {
    if let Ok(projector) = Projector::new(hapax) {
        project_with(projector, hapax, once).await;
    }
}

/// The same, with a projector that the caller has set up.
pub(crate) async fn project_with(mut projector: Projector, hapax: &Hapax, once: bool) {
    loop {
        if once {
            // The newest entries are sealed first.
            let _ = hapax.pass().await;
        }
        let behind = match projector.pass().await {
            Ok(projected) => projected.behind,
            Err(error) => {
                tracing::warn!(name: "lineage_not_written", %error, "writing lineage failed; the next pass retries");
                if once {
                    return;
                }
                0
            }
        };
        match (behind, once) {
            (0, true) => return,
            (0, false) => tokio::time::sleep(PAUSE).await,
            _ => {}
        }
    }
}

pub(crate) async fn main(global: &Global, args: &Dispatch) -> Result<Exit, Failed> {
    log::listen(args.telemetry.as_deref(), LogFormat::Text)?;
    let outbox = Config::read(&args.config)?.outbox()?;
    let hapax = output::builder(global)
        .holder(format!("hapax outbox dispatch, process {}", std::process::id()))
        .open(&global.db)
        .await?;
    let dispatcher = hapax.outbox().dispatch(outbox).await?;
    let stop_signal = stop::requested()?;
    if !args.until_idle {
        eprintln!("hapax: delivering; stop with Ctrl-C");
    }
    let projected = project(&hapax, args.until_idle);
    let idle = async {
        projected.await;
        dispatcher.idle().await;
    };
    tokio::select! {
        () = idle => {}
        () = stop_signal => {}
    }
    let status = dispatcher.status();
    dispatcher.stop().await?;
    hapax.close().await?;
    let (delivered, failed) = (status.delivered, status.failed);
    if global.json {
        output::json(&serde_json::json!({ "delivered": delivered, "failed": failed }));
    } else {
        eprintln!("hapax: {delivered} delivered, {failed} failed");
    }
    match failed {
        0 => Ok(Exit::Done),
        _ => {
            Err(Failed::new(Exit::Look, format!("{failed} could not be delivered")).next(format!(
                "List them: {}; then: {}",
                command(["outbox", "list", "--status", "failed"]),
                command(["outbox", "redrive"])
            )))
        }
    }
}
