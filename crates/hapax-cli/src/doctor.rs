//! `hapax doctor`: problems that need attention, with an exit code for CI jobs.

use hapax::Severity;
use hapax_pipeline::health;
use serde_json::{Map, Value, json};

use crate::args::{self, Global};
use crate::exit::{Exit, Failed};
use crate::{journal, output};

pub(crate) async fn main(global: &Global, args: &args::Doctor) -> Result<Exit, Failed> {
    let hapax = output::open(global).await?;
    if args.after_restore {
        let running = hapax.maintenance().after_restore().await?;
        eprintln!("hapax: fences were raised; {running} running effects have no holder now");
    }
    if args.repair {
        let repaired = hapax.maintenance().repair().await?;
        eprintln!("hapax: {repaired} rows were repaired");
    }
    let mut doctor = hapax.maintenance().doctor().await?;
    if args.deep {
        let verified = journal::verify(&hapax, None).await?;
        doctor.findings.extend(verified.damage.iter().map(|damage| hapax::DoctorFinding {
            severity: Severity::Error,
            what: format!("the journal is damaged: {damage}"),
            next: "copy the file before anything else".into(),
        }));
    }
    let mut operations = health::examine(&hapax).await?;
    if hapax.maintenance().namespaces().await?.len() > 1 {
        let namespace = hapax.namespace();
        operations
            .iter_mut()
            .for_each(|f| f.what = format!("in namespace {namespace}, {}", f.what));
    }
    doctor.findings.extend(operations);
    for finding in doctor.findings.iter_mut().filter(|f| f.what.contains("(review: ")) {
        finding.next = "answer it: hapax reviews approve (or reject)".into();
    }
    doctor.findings.sort_by_key(|finding| finding.severity);
    let errors =
        doctor.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let exit = if errors > 0 { Exit::Look } else { Exit::Done };
    if global.json {
        let census =
            doctor.census.iter().map(|(state, count)| (state.to_string(), Value::from(*count)));
        let findings = doctor.findings.iter().map(|finding| {
            let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
            json!({ "severity": severity, "what": finding.what, "next": finding.next })
        });
        output::json(&json!({
            "healthy": errors == 0,
            "effects": Value::Object(census.collect::<Map<_, _>>()),
            "leases": doctor.leases,
            "journal": { "entries": doctor.entries, "sealed": doctor.sealed },
            "findings": findings.collect::<Vec<_>>(),
        }));
        return Ok(exit);
    }
    let census: Vec<_> =
        doctor.census.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let census = if census.is_empty() { "none".into() } else { census.join(", ") };
    output::print(&format!("effects   {census}"));
    output::print(&format!("leases    {} in force", doctor.leases));
    output::print(&format!("journal   {} entries, {} sealed", doctor.entries, doctor.sealed));
    for finding in &doctor.findings {
        let word = match finding.severity {
            Severity::Error => console::style("error  ").red().bold(),
            Severity::Warning => console::style("warning").yellow(),
        };
        output::print(&format!("{word}   {}\n          → {}", finding.what, finding.next));
    }
    if doctor.findings.is_empty() {
        output::print(&format!("{}", console::style("healthy").green()));
    }
    Ok(exit)
}
