//! Results that may be forgotten, on two nodes of one ledger.

use std::sync::Arc;
use std::time::Duration;

use hapax::result_index::{Evict, IndexEntry, Ontology, ResultFilter};
use hapax::{Error, Failure, Hapax, How, MemoryStore, StoreError, Timestamp};
use tokio::sync::Notify;

use super::{LONG, key, ok};

const IRI: &str = "https://example.org/rivers";

fn nodes() -> (Arc<MemoryStore>, Hapax, Hapax) {
    let store = Arc::new(MemoryStore::with_system_clock());
    let node = || Hapax::builder().lease(Duration::from_secs(2)).on(store.clone());
    (store.clone(), node(), node())
}

fn ontology(version: &str) -> Option<Ontology> {
    Some(Ontology {
        id: IRI.into(),
        version: version.into(),
        content: "{}".into(),
        metadata: "{}".into(),
        updated: Timestamp(0),
    })
}

fn index_entry(version: &str) -> IndexEntry {
    IndexEntry {
        ontology: IRI.into(),
        version: version.into(),
        text_hash: "t".into(),
        params_hash: "p".into(),
        whole: true,
    }
}

/// Proves X-5: a caller that waits on another node gets the same failure, and a later caller may try.
#[tokio::test(start_paused = true)]
async fn waiters_on_another_node_get_the_same_error() {
    let (_store, here, there) = nodes();
    let (started, fail) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let leader = tokio::spawn({
        let (started, fail) = (started.clone(), fail.clone());
        here.effect(key(1)).share_failures().run(move |_| async move {
            started.notify_one();
            fail.notified().await;
            Err::<&str, _>(Failure::not_done("the model is down"))
        })
    });
    started.notified().await;
    let waiter = tokio::spawn(there.effect(key(1)).share_failures().run(|_| async { ok("mine") }));
    let behind = tokio::spawn(there.effect(key(1)).share_failures().run(|_| async { ok("mine") }));
    while there.counts().cache_misses < 2 || there.counts().in_flight == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fail.notify_one();
    for answer in [leader.await, waiter.await, behind.await] {
        let Err(Error::Failed { reason }) = answer.unwrap() else { panic!("it failed") };
        assert_eq!(reason, "the model is down");
    }
    let later = there.effect(key(1)).share_failures().run(|_| async { ok("mine") }).await.unwrap();
    assert_eq!((later.how, later.body()), (How::Executed, Some(&b"mine"[..])));
}

/// Proves X-7: every node has seen a change when it returns, so none of them goes on with its
/// cache. A result made meanwhile is not recorded.
#[tokio::test(start_paused = true)]
async fn a_change_is_heard_of_everywhere_before_it_returns() {
    let (_store, here, there) = nodes();
    here.results().keep_ontology(IRI, ontology("v1"), "ada").await.unwrap();
    there.results().listen().await.unwrap();
    here.results().listen().await.unwrap();
    let (mine, theirs) = (here.results().stamp().unwrap(), there.results().stamp().unwrap());
    let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let late = tokio::spawn({
        let (started, finish) = (started.clone(), finish.clone());
        there.effect(key(1)).run(move |claim| async move {
            claim.index_result(index_entry("v1"));
            started.notify_one();
            finish.notified().await;
            ok("of v1")
        })
    });
    started.notified().await;
    let same = here.results().keep_ontology(IRI, ontology("v1"), "ada").await.unwrap();
    assert_eq!((same.as_deref(), here.results().stamp()), (Some("v1"), Some(mine)));
    let change = here.results().keep_ontology(IRI, ontology("v2"), "ada");
    let before = tokio::time::timeout(LONG, change).await.expect("they listen").unwrap();
    assert_eq!(before.as_deref(), Some("v1"));
    assert_ne!((here.results().stamp(), there.results().stamp()), (Some(mine), Some(theirs)));
    assert_ne!(there.results().stamp(), Some(theirs));
    finish.notify_one();
    let answer = late.await.unwrap();
    assert!(matches!(answer, Err(Error::Store(StoreError::Superseded(_)))), "{answer:?}");
    assert_eq!(
        here.results().search(ResultFilter { limit: 9, ..ResultFilter::default() }).await.unwrap(),
        []
    );
    let again = there.effect(key(1)).run(|claim| async move {
        claim.index_result(index_entry("v2"));
        ok("of v2")
    });
    assert_eq!(again.await.unwrap().how, How::Executed);
}

/// Proves: a result removed by hand is gone from every cache. A result that expires is
/// cached only until then, also by a node that did not make it.
#[tokio::test(start_paused = true)]
async fn a_removed_result_is_gone_from_every_cache() {
    let (_store, here, there) = nodes();
    here.results().keep_ontology(IRI, ontology("v1"), "ada").await.unwrap();
    let extract = |node: &Hapax, says: &'static str| {
        node.effect(key(1)).ttl(Duration::from_secs(3600)).run(move |claim| async move {
            claim.index_result(index_entry("v1"));
            ok(says)
        })
    };
    extract(&here, "first").await.unwrap();
    there.results().listen().await.unwrap();
    for node in [&there, &here] {
        let done = extract(node, "again").await.unwrap();
        assert_eq!((done.how, done.body()), (How::Replayed, Some(&b"first"[..])));
    }
    let hits = there.counts().cache_hits;
    extract(&there, "again").await.unwrap();
    assert_eq!(there.counts().cache_hits, hits + 1, "a replay is remembered");
    let removed = here.results().evict(Evict::Of { ontology: IRI.into() }, 100).await.unwrap();
    assert_eq!(removed, 1);
    let done = extract(&there, "second").await.unwrap();
    assert_eq!((done.how, done.body()), (How::Executed, Some(&b"second"[..])));
}
