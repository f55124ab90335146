//! Runs one experiment, or all of them.
use clap::Parser;
use hapax_core::planted::{Bug, plant};
use hapax_proof::{field::Field, model, processes, report::Report, simulation, sink, worker};
#[derive(Parser)]
struct W {
    #[command(flatten)]
    orders: worker::Orders,
}
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args[0] == "sink" {
        sink::serve(args[1].as_ref()).unwrap();
        return;
    }
    if args[0] == "worker" {
        let w = W::parse_from(&args);
        worker::work(w.orders).unwrap();
        return;
    }
    if let Some(at) = args.iter().position(|a| a == "--plant") {
        plant(*Bug::ALL.iter().find(|b| b.name() == args[at + 1]).expect("a bug"));
    }
    let mut report = Report::new(args[0].clone());
    let t = std::time::Instant::now();
    let n = |i: usize| args[i].parse::<u64>().unwrap();
    match args[0].as_str() {
        "model" => {
            for (name, protocol) in model::protocols(args.contains(&"full".into())) {
                model::check(&name, protocol, &mut report);
            }
        }
        "flight" => model::check_flight(model::Flight { callers: 5, deaths: 2 }, &mut report),
        "simulate" => simulation::simulate(n(1)..n(2), &mut report),
        "enumerate" => simulation::enumerate(n(1)..n(2), &mut report),
        "kills" => processes::kills(&Field::in_file(), n(1), 1, &mut report),
        "failpoints" => hapax_proof::failpoints::failpoints(None, n(1) as usize, None, &mut report),
        "pgfailpoints" => hapax_proof::failpoints::failpoints(
            Some(&hapax_testkit::Postgres::start()),
            n(1) as usize,
            None,
            &mut report,
        ),
        "power" => {
            hapax_proof::disk::power_cuts(n(1), 1, args.get(2).map(String::as_str), &mut report)
        }
        "pgpower" => hapax_proof::disk::postgres_power_cuts(n(1), 1, &mut report),
        "syncs" => hapax_proof::disk::failing_syncs(n(1), &mut report),
        "full" => hapax_proof::disk::full_disks(n(1), &mut report),
        "cuts" => {
            hapax_proof::network::commit_cuts(n(1), args.get(2).map(String::as_str), &mut report)
        }
        "sessions" => hapax_proof::network::ended_sessions(n(1), &mut report),
        "servers" => hapax_proof::network::server_kills(n(1), &mut report),
        "failovers" => hapax_proof::network::failovers(n(1), &mut report),
        "stops" => {
            let mut f = Field::in_file();
            f.lease_ms = 400;
            processes::stops(&f, n(1), 1, &mut report)
        }
        "pgkills" => {
            let pg = hapax_testkit::Postgres::start();
            let f = Field::at(pg.database("proof"));
            processes::kills(&f, n(1), 1, &mut report)
        }
        "pgstops" => {
            let pg = hapax_testkit::Postgres::start();
            let mut f = Field::at(pg.database("proof"));
            f.lease_ms = 400;
            processes::stops(&f, n(1), 1, &mut report)
        }
        _ => panic!(),
    }
    println!("{report}{:?}", t.elapsed());
}
