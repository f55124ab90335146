//! Runs one experiment, or all of them.
use hapax_proof::{model, report::Report};
fn main() {
    let full = std::env::args().any(|a| a == "full");
    let only = std::env::args().nth(1).unwrap_or_default();
    let mut report = Report::new("model");
    for (name, protocol) in model::protocols(full) {
        if !name.contains(&only) {
            continue;
        }
        let t = std::time::Instant::now();
        model::check(&name, protocol, &mut report);
        eprintln!("{name} {:?}", t.elapsed());
    }
    model::check_flight(model::Flight { callers: 5, deaths: 2 }, &mut report);
    println!("{report}");
}
