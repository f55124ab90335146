//! Parts: effects that belong to a whole.

use hapax_core::effect::State;
use hapax_core::part::{Part, PartFilter, PartRecord};

use super::*;

const ITEM: Key = Key::from_bytes([200; 32]);

fn part(kind: &str, body: &str) -> Part {
    Part { whole: ITEM, kind: kind.into(), body: body.into() }
}

fn ask_part(n: u8, part: Part) -> Ask {
    Ask { part: Some(part), ..ask(n) }
}

fn of_kind(kind: &str) -> PartFilter {
    PartFilter { whole: Some(ITEM), kind: kind.into(), limit: 100, ..PartFilter::default() }
}

impl Bench<'_> {
    fn parts(&self, filter: PartFilter) -> Vec<PartRecord> {
        self.view(move |view| view.parts(&Namespace::default(), &filter))
    }

    fn bodies(&self, filter: PartFilter) -> Vec<String> {
        let text = |found: PartRecord| String::from_utf8(found.part.body).expect("text");
        self.parts(filter).into_iter().map(text).collect()
    }

    fn keep_part(&self, key: u8, attempt: AttemptId, report: Report, part: Part) {
        let attachments = Attachments { part: Some(part), ..Attachments::default() };
        let settled = self.settle_with(key, attempt, report, attachments);
        assert!(matches!(settled, Ok(Settled::Recorded)), "{settled:?}");
    }
}

cases! {
    /// Proves I-4: the requested payload is kept with the grant, beside the outcome.
    parts_are_found_by_their_whole_in_the_order_of_their_grants: |b| {
        for n in 1..=5 {
            let kind = if n == 3 { "run" } else { "mutation" };
            b.granted(n, ask_part(n, part(kind, &n.to_string())));
        }
        b.granted(6, Ask { part: Some(Part { whole: name(7).key, ..part("mutation", "6") }), ..ask(6) });
        b.granted(7, ask(7));
        b.settle(4, attempt(4), ok());
        assert_eq!(b.bodies(of_kind("mutation")), ["1", "2", "4", "5"]);
        assert_eq!(b.bodies(of_kind("run")), ["3"]);
        let anywhere = PartFilter { whole: None, ..of_kind("mutation") };
        assert_eq!(b.bodies(anywhere), ["1", "2", "4", "5", "6"]);
        let newest = PartFilter { newest_first: true, limit: 2, ..of_kind("mutation") };
        assert_eq!(b.bodies(newest.clone()), ["5", "4"]);
        let position = b.parts(newest.clone()).pop().map(|found| found.position);
        assert_eq!(b.bodies(PartFilter { beyond: position, ..newest }), ["2", "1"]);
        let first = b.parts(PartFilter { limit: 1, ..of_kind("mutation") }).pop().map(|f| f.position);
        assert_eq!(b.bodies(PartFilter { beyond: first, ..of_kind("mutation") }), ["2", "4", "5"]);
        let done = PartFilter { states: vec![StateName::Succeeded], ..of_kind("mutation") };
        let found = b.parts(done).pop().expect("one");
        assert_eq!(found.effect.state, State::Succeeded(Outcome::new(*b"done")));
        assert_eq!((found.name, found.part), (name(4), part("mutation", "4")));
        let open = PartFilter { states: vec![StateName::Indeterminate], ..of_kind("mutation") };
        assert_eq!(b.bodies(open.clone()), Vec::<String>::new());
        b.settle(2, attempt(2), Report::Ambiguous("timeout".into()));
        assert_eq!(b.bodies(open), ["2"]);
        let elsewhere = Namespace::new("elsewhere").expect("a name");
        assert_eq!(b.view(move |view| view.parts(&elsewhere, &of_kind("mutation"))), []);
        assert_eq!(b.view(|view| view.part(&name(1))), Some(part("mutation", "1")));
        assert_eq!(b.view(|view| view.part(&name(7))), None);
    }

    /// Proves I-6: a mutation that is attempted again is recorded with its new payload.
    the_newest_claim_or_report_decides_the_body_of_a_part: |b| {
        b.granted(1, ask_part(1, part("mutation", "first")));
        b.granted(9, ask_part(9, part("mutation", "other")));
        assert_eq!(b.claim(1, ask_part(2, part("mutation", "not granted"))), Verdict::InFlight { attempt: attempt(1) });
        assert_eq!(b.bodies(of_kind("mutation")), ["first", "other"]);
        b.keep_part(1, attempt(1), Report::Failed("busy".into()), part("mutation", "failed once"));
        assert_eq!(b.bodies(of_kind("mutation")), ["failed once", "other"]);
        b.granted(1, ask_part(3, part("mutation", "second")));
        assert_eq!(b.bodies(of_kind("mutation")), ["second", "other"], "in its first place");
        b.settle(1, attempt(3), ok());
        assert_eq!(b.bodies(of_kind("mutation")), ["second", "other"]);
        let large = Part { body: vec![7; Limits::PART + 1], ..part("mutation", "") };
        let refused = b.run(command::Claim { name: name(4), ask: ask_part(4, large) });
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
        assert_eq!(b.state(4), None);
    }

    /// Proves K-11: the part of an effect is removed with it.
    an_expired_part_is_gone: |b| {
        let kept = Ask { ttl_ms: Some(1_000), ..ask_part(1, part("mutation", "brief")) };
        b.granted(1, kept);
        b.granted(2, ask_part(2, part("mutation", "stays")));
        b.settle(1, attempt(1), ok());
        b.settle(2, attempt(2), ok());
        b.clock.advance(1_001);
        assert_eq!(b.count(command::Sweep { limit: 10 }), 1);
        assert_eq!(b.bodies(of_kind("mutation")), ["stays"]);
        assert_eq!(b.view(|view| view.part(&name(1))), None);
    }
}
