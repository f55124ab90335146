//! `hapax outbox dispatch`: deliver, until it is told to stop.

use crate::args::{Dispatch, Global, LogFormat};
use crate::config::Config;
use crate::exit::{Exit, Failed};
use crate::{log, output, stop};

pub(crate) async fn main(global: &Global, asked: &Dispatch) -> Result<Exit, Failed> {
    log::listen(asked.telemetry.as_deref(), LogFormat::Text)?;
    let outbox = Config::read(&asked.config)?.outbox()?;
    let hapax = output::builder(global)
        .holder(format!("hapax outbox dispatch, process {}", std::process::id()))
        .open(&global.db)
        .await?;
    let dispatcher = hapax.dispatch(outbox).await?;
    let told = stop::told()?;
    if !asked.until_idle {
        eprintln!("hapax: delivering; stop with Ctrl-C");
    }
    let idle = async {
        match asked.until_idle {
            true => dispatcher.idle().await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        () = idle => {}
        () = told => {}
    }
    let standing = dispatcher.standing();
    dispatcher.stop().await?;
    hapax.close().await?;
    let (delivered, failed) = (standing.delivered, standing.failed);
    if global.json {
        output::json(&serde_json::json!({ "delivered": delivered, "failed": failed }));
    } else {
        eprintln!("hapax: {delivered} delivered, {failed} failed");
    }
    match failed {
        0 => Ok(Exit::Done),
        _ => Err(Failed::new(Exit::Look, format!("{failed} could not be delivered"))
            .next("See: hapax outbox list --status failed; then: hapax outbox redrive")),
    }
}
