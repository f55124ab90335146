//! `hapax control`: the computations that may be dispatched.

use hapax_server::wire::Computation;

use crate::args::{Control, Global};
use crate::config::Config;
use crate::exit::{Exit, Failed};
use crate::output;

pub(crate) fn main(global: &Global, control: &Control) -> Result<Exit, Failed> {
    let Control::Computations { config } = control;
    let registry = Config::read_or_default(config)?.registry()?;
    if global.json {
        registry.iter().for_each(|computation| output::json(&Computation::of(computation)));
        return Ok(Exit::Done);
    }
    let row = |computation: &hapax_control::Computation| {
        let domain = computation.domain().to_string();
        vec![computation.name().to_owned(), domain, Computation::policy(computation)]
    };
    let rows: Vec<_> = registry.iter().map(row).collect();
    output::table(&["COMPUTATION", "DOMAIN", "RETRIES"], &rows);
    Ok(Exit::Done)
}
