//! Runs one experiment, or all of them.
use hapax_core::planted::{Bug, plant};
use hapax_proof::{model, report::Report, simulation};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|a| a == "--plant") {
        plant(*Bug::ALL.iter().find(|b| b.name() == args[at + 1]).expect("a bug"));
    }
    let mut report = Report::new(args[0].clone());
    let t = std::time::Instant::now();
    match args[0].as_str() {
        "model" => {
            for (name, protocol) in model::protocols(args.contains(&"full".into())) {
                model::check(&name, protocol, &mut report);
            }
        }
        "flight" => model::check_flight(model::Flight { callers: 5, deaths: 2 }, &mut report),
        "simulate" => {
            let a: u64 = args[1].parse().unwrap();
            let b: u64 = args[2].parse().unwrap();
            simulation::simulate(a..b, &mut report)
        }
        "enumerate" => {
            let a: u64 = args[1].parse().unwrap();
            let b: u64 = args[2].parse().unwrap();
            simulation::enumerate(a..b, &mut report)
        }
        _ => panic!(),
    }
    println!("{report}{:?}", t.elapsed());
}
