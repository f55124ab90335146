//! Tests of long texts: the chunks that are read again after an edit, and the progress.

use super::*;

on_both! {
    one_changed_paragraph_is_read_again_alone
    a_waiting_caller_gets_the_progress
    a_chunk_says_for_which_result_it_was_read
}

mod cases {
    use super::*;
    use hapax_extract::Progress;
    use tokio::sync::mpsc;

    /// Proves X-8: of a megabyte with one changed paragraph, at most five of a hundred chunks are
    /// read again.
    pub(super) async fn one_changed_paragraph_is_read_again_alone(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let extract = ledger.extract(&probe).await;
        keep(&extract).await;
        let mut paragraphs = large();
        let text = paragraphs.join("\n");
        assert!(text.len() > 900_000, "{}", text.len());
        let first = extract.extract(&request(&text), None).await.expect("it works");
        let all = probe.calls();
        assert_eq!(all, hapax_extract::chunks(&text, 2_000).len());
        paragraphs[2_000] = "A new paragraph says that the Seine is a river.".into();
        let second =
            extract.extract(&request(&paragraphs.join("\n")), None).await.expect("it works");
        let again = probe.calls() - all;
        assert!(again > 0 && again * 20 <= all, "{again} of {all}");
        assert!(!second.is_hit());
        let (first, second) = (first.graph().expect("it works"), second.graph().expect("it works"));
        let ids = |graph: &hapax_extract::Graph| -> std::collections::BTreeSet<String> {
            graph.entities.iter().map(|entity| entity.id.clone()).collect()
        };
        assert!(ids(&first).is_subset(&ids(&second)), "ids are stable");
        // Every entity stands where its places say.
        let chars: Vec<char> = paragraphs.join("\n").chars().collect();
        for entity in &second.entities {
            for place in &entity.mentions {
                let stands: String = chars[place.start..place.end].iter().collect();
                assert!(entity.forms.contains(&stands), "{stands:?} of {:?}", entity.forms);
            }
        }
    }

    /// Proves X-12: the caller gets the number of chunks, and the findings of each.
    pub(super) async fn a_waiting_caller_gets_the_progress(ledger: Arc<Ledger>) {
        let extract = ledger.extract(&Probe::new()).await;
        keep(&extract).await;
        let text = large()[..40].join("\n");
        let of = hapax_extract::chunks(&text, 2_000).len();
        let (sender, mut progress) = mpsc::channel(1_000);
        extract.extract(&request(&text), Some(sender)).await.expect("it works");
        assert_eq!(progress.recv().await, Some(Progress::Chunked { chunks: of }));
        for nth in 1..=of {
            let Some(Progress::Read { done, found, .. }) = progress.recv().await else {
                panic!("{nth}")
            };
            assert_eq!(done, nth);
            assert!(!found.mentions.is_empty());
        }
        assert_eq!(progress.recv().await, Some(Progress::Merging));
        assert_eq!(progress.recv().await, None);
    }

    /// Proves X-8: the key goes with every chunk into the journal, and the text does not.
    pub(super) async fn a_chunk_says_for_which_result_it_was_read(ledger: Arc<Ledger>) {
        let extract = ledger.extract(&Probe::new()).await;
        keep(&extract).await;
        let text = large()[..40].join("\n");
        let of = hapax_extract::chunks(&text, 2_000).len();
        let first = extract.extract(&request(&text), None).await.expect("it works");
        assert_eq!(ledger.first_requested_by().await, vec![first.key.to_string(); of]);
        // A reused chunk is not granted again, so its note still names the result that it was first
        // read for.
        let longer = format!("{text}\nThe Seine is a river.");
        let second = extract.extract(&request(&longer), None).await.expect("it works");
        let keys = ledger.first_requested_by().await;
        assert_eq!(keys[..of], vec![first.key.to_string(); of]);
        assert!(keys.len() > of, "{keys:?}");
        assert!(keys[of..].iter().all(|key| *key == second.key.to_string()), "{keys:?}");
        let entries = ledger.node().await.journal().entries(0, 10_000).await.expect("the journal");
        let mut notes = entries.iter().filter_map(|entry| entry.note.as_deref());
        assert!(notes.all(|note| !note.contains("Danube")), "no text is in the journal");
    }
}
