//! Cached results, and the ontologies they are made from.

use hapax_core::outbox::Payload;
use hapax_core::result_index::{
    AccessKind, CacheAccess, CacheStats, Evict, IndexEntry, IndexedResult, Ontology, ResultFilter,
};
use hapax_core::time::Timestamp;

use super::*;
use crate::outbox::RecordFilter;

const IRI: &str = "https://example.org/rivers";

fn ontology(version: &str) -> Ontology {
    Ontology {
        id: IRI.into(),
        version: version.into(),
        content: "{\"classes\":[]}".into(),
        metadata: "{\"label\":\"Rivers\"}".into(),
        updated: Timestamp(0),
    }
}

fn index_entry(ontology: &str, version: &str) -> IndexEntry {
    IndexEntry {
        ontology: ontology.into(),
        version: version.into(),
        text_hash: "459dcae8b61bcf85".into(),
        params_hash: "e50c06d38a25e53e".into(),
        whole: true,
    }
}

impl Bench<'_> {
    fn keep(&self, id: &str, ontology: Option<Ontology>) -> Option<String> {
        let (namespace, id, actor) = (Namespace::default(), id.to_owned(), "ada".into());
        self.run(command::PutOntology { namespace, id, ontology, actor }).expect("a change")
    }

    fn settle_indexed(&self, n: u8, attempt: u8, entry: IndexEntry) -> Result<Settled, StoreError> {
        let report = Report::Succeeded(Outcome::from("12 entities"));
        let attachments = Attachments { index_entry: Some(entry), ..Attachments::default() };
        self.settle_with(n, super::attempt(attempt), report, attachments)
    }

    fn index(&self, n: u8, entry: IndexEntry) {
        self.claim(n, ask(n));
        let settled = self.settle_indexed(n, n, entry);
        assert!(matches!(settled, Ok(Settled::Recorded)), "{settled:?}");
    }

    fn evict(&self, which: Evict, limit: usize) -> usize {
        self.count(command::Evict { namespace: Namespace::default(), which, limit })
    }

    fn results(&self) -> Vec<IndexedResult> {
        let filter = ResultFilter { limit: 100, ..ResultFilter::default() };
        self.view(move |view| view.indexed_results(&Namespace::default(), &filter))
    }

    fn keys(&self) -> Vec<Key> {
        self.results().into_iter().map(|result| result.key).collect()
    }

    fn notice(&self) -> u64 {
        self.view(|view| view.notice())
    }
}

cases! {
    /// Proves X-7: an ontology is read back as it was stored. A new version raises a notice for
    /// every node and emits an event; a write that keeps the version does neither.
    an_ontology_is_kept_until_another_takes_its_place: |b| {
        assert_eq!(b.keep(IRI, Some(ontology("v1"))), None);
        let noticed = b.notice();
        let kept = || b.view(|view| view.ontology(&Namespace::default(), IRI));
        let first = kept().expect("it is there");
        assert_eq!(first, Ontology { updated: b.clock.now().wall, ..ontology("v1") });
        let edited = Ontology { metadata: "{}".into(), ..ontology("v1") };
        assert_eq!(b.keep(IRI, Some(edited)), Some("v1".into()));
        assert_eq!(b.notice(), noticed, "extractors read the same as before");
        assert_eq!(kept().expect("it is there").metadata, "{}");
        assert_eq!(b.keep(IRI, Some(ontology("v2"))), Some("v1".into()));
        assert_eq!(b.notice(), noticed + 1);
        let listed = b.view(|view| view.ontologies(&Namespace::default()));
        let versions: Vec<_> = listed.iter().map(|o| (o.version.as_str(), o.content.len())).collect();
        assert_eq!(versions, [("v2", 0)]);
        let elsewhere = Namespace::new("elsewhere").expect("a name");
        assert_eq!(b.view(move |view| view.ontologies(&elsewhere)), []);
        assert_eq!(b.keep(IRI, None), Some("v2".into()));
        assert_eq!((kept(), b.notice()), (None, noticed + 2));
        assert_eq!(b.keep(IRI, None), None);
        let filter = RecordFilter { limit: 10, ..RecordFilter::default() };
        let records = b.view(move |view| view.outbox(&filter));
        let payloads: Vec<_> = records.iter().map(|found| found.record.event.payload.clone()).collect();
        let now = b.clock.now().wall.0;
        let says = |old: &str, new: &str| Payload::stored(format!(
            "{{\"newVersion\":{new},\"oldVersion\":{old},\"ontologyId\":\"{IRI}\",\"timestamp\":{now}}}"
        ));
        let (none, one, two) = ("null", "\"v1\"", "\"v2\"");
        let expected = [says(two, none), says(one, two), says(none, one)];
        assert_eq!(payloads.iter().map(Payload::as_str).collect::<Vec<_>>(),
            expected.iter().map(Payload::as_str).collect::<Vec<_>>());
    }

    /// Proves X-7: a result of an ontology that has changed since is not recorded, and may be made
    /// again at once.
    a_result_of_an_ontology_that_changed_is_not_recorded: |b| {
        b.keep(IRI, Some(ontology("v1")));
        b.claim(1, ask(1));
        b.keep(IRI, Some(ontology("v2")));
        let late = b.settle_indexed(1, 1, index_entry(IRI, "v1"));
        assert!(matches!(late, Err(StoreError::Superseded(_))), "{late:?}");
        assert_eq!(b.results(), []);
        let late = b.settle_indexed(1, 1, index_entry("https://example.org/gone", "v1"));
        assert!(matches!(late, Err(StoreError::Superseded(_))), "{late:?}");
        let settled = b.settle_indexed(1, 1, index_entry(IRI, "v2"));
        assert!(matches!(settled, Ok(Settled::Recorded)), "{settled:?}");
        assert_eq!(b.keys(), [name(1).key]);
    }

    /// Proves: a result is found by its ontology and its text, with its size and last
    /// use.
    a_result_is_found_by_its_ontology_text_and_parameters: |b| {
        b.keep(IRI, Some(ontology("v1")));
        b.index(1, index_entry(IRI, "v1"));
        b.clock.advance(10);
        let other = IndexEntry { text_hash: "00".into(), ..index_entry(IRI, "v1") };
        b.index(2, other.clone());
        b.index(3, IndexEntry { whole: false, ..other });
        let found = b.results();
        assert_eq!(found.iter().map(|result| result.key).collect::<Vec<_>>(), [name(2).key, name(1).key]);
        assert_eq!((&found[1].entry, found[1].bytes), (&index_entry(IRI, "v1"), 11));
        assert_eq!(found[1].created, Timestamp(found[0].created.0 - 10));
        let filter = ResultFilter { text_hash: Some("00".into()), limit: 9, ..ResultFilter::default() };
        let by_text = b.view(move |view| view.indexed_results(&Namespace::default(), &filter));
        assert_eq!(by_text.len(), 1);
        let filter = ResultFilter { ontology: Some("x".into()), limit: 9, ..ResultFilter::default() };
        let by_other = b.view(move |view| view.indexed_results(&Namespace::default(), &filter));
        assert_eq!(by_other, []);
        let stats = b.view(|view| view.cache_stats(&Namespace::default()));
        assert_eq!(stats, CacheStats { whole: 2, parts: 1, bytes: 33 });
        let elsewhere = Namespace::new("elsewhere").expect("a name");
        let stats = b.view(move |view| view.cache_stats(&elsewhere));
        assert_eq!(stats, CacheStats::default());
    }

    /// Proves X-6: the least recently used results go first, and a removed result is granted again
    /// like a new one.
    results_are_removed_by_last_use: |b| {
        b.keep(IRI, Some(ontology("v1")));
        b.index(4, IndexEntry { whole: false, ..index_entry(IRI, "v1") });
        for n in 1..=3 {
            b.clock.advance(10);
            b.index(n, index_entry(IRI, "v1"));
        }
        b.clock.advance(10);
        let access = |n: u8, kind| CacheAccess {
            name: name(n), ontology: IRI.into(), kind, times: 3, about: "{}".into(),
        };
        let accesses = vec![access(1, AccessKind::Hit), access(2, AccessKind::Miss), access(4, AccessKind::Used)];
        let recorded = b.run(command::RecordAccesses(accesses));
        assert!(matches!(recorded, Ok(())), "{recorded:?}");
        let noticed = b.notice();
        assert_eq!(b.evict(Evict::Oldest, 2), 2);
        assert_eq!((b.keys(), b.notice()), (vec![name(1).key], noticed));
        let stats = b.view(|view| view.cache_stats(&Namespace::default()));
        assert_eq!((stats.whole, stats.parts), (1, 1), "a part that was used is still there");
        assert!(matches!(b.claim(1, ask(9)), Verdict::Replayed { .. }));
        assert!(matches!(b.claim(2, ask(9)), Verdict::Granted(_)));
    }

    /// Proves X-7: only the ontology's own results are removed, and none that is being made again.
    only_the_results_of_one_ontology_are_removed: |b| {
        b.keep(IRI, Some(ontology("v1")));
        b.keep("o2", Some(Ontology { id: "o2".into(), ..ontology("w1") }));
        b.index(1, index_entry(IRI, "v1"));
        b.index(2, index_entry("o2", "w1"));
        b.index(3, IndexEntry { whole: false, ..index_entry(IRI, "v1") });
        b.keep(IRI, Some(ontology("v2")));
        b.index(4, index_entry(IRI, "v2"));
        // This result was recorded, has expired, and is being made again.
        b.claim(5, Ask { ttl_ms: Some(10), ..ask(5) });
        let made = b.settle_indexed(5, 5, index_entry("o2", "w1"));
        assert!(matches!(made, Ok(Settled::Recorded)), "{made:?}");
        b.clock.advance(20);
        assert!(matches!(b.claim(5, ask(55)), Verdict::Granted(_)));
        let noticed = b.notice();
        assert_eq!(b.evict(Evict::Outdated { ontology: IRI.into() }, 100), 2);
        assert_eq!(b.notice(), noticed + 1, "caches must drop them too");
        let mut left = b.keys();
        left.sort();
        assert_eq!(left, [name(2).key, name(4).key, name(5).key]);
        assert_eq!(b.evict(Evict::One(name(2).key), 100), 1);
        assert_eq!(b.evict(Evict::One(name(5).key), 100), 0);
        assert_eq!(b.evict(Evict::Of { ontology: IRI.into() }, 100), 1);
        b.index(6, index_entry("o2", "w1"));
        assert_eq!(b.evict(Evict::All, 100), 1);
        assert_eq!((b.keys(), b.evict(Evict::All, 100)), (vec![name(5).key], 0));
        let again = b.settle_indexed(5, 55, index_entry("o2", "w1"));
        assert!(matches!(again, Ok(Settled::Recorded)), "{again:?}");
        assert_eq!(b.evict(Evict::All, 100), 1);
    }

    /// Proves X-6: an expired result has no index entry.
    an_expired_result_leaves_the_index: |b| {
        b.keep(IRI, Some(ontology("v1")));
        b.claim(1, Ask { ttl_ms: Some(50), ..ask(1) });
        let settled = b.settle_indexed(1, 1, index_entry(IRI, "v1"));
        assert!(matches!(settled, Ok(Settled::Recorded)), "{settled:?}");
        b.clock.advance(60);
        assert!(matches!(b.run(command::Sweep { limit: 10 }), Ok(1)));
        assert_eq!(b.results(), []);
    }
}
