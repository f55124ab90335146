//! Tests of the log: the names and the fields that the requirements want.

use std::io::Write;
use std::sync::{Arc, Mutex};

use hapax::Hapax;
use hapax_extract::{Builtin, Class, Extract, ExtractionRequest, Ontology, Settings};

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Proves X-13: every line has the key and its other fields; no line has the text.
#[tokio::test]
async fn every_line_has_the_key_and_none_has_the_text() {
    let page = Page::default();
    let lines = page.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone()).init();
    let hapax = Hapax::builder().in_memory();
    let extract = Extract::new(hapax, Arc::new(Builtin::new()), Settings::default());
    let class =
        |label: &str| Class { id: "e:River".into(), label: Some(label.into()), ..Class::default() };
    let ontology = |label| Ontology {
        id: "https://example.org/rivers".into(),
        classes: vec![class(label)],
        ..Ontology::default()
    };
    extract.put_ontology(&ontology("river"), None, "ada").await.unwrap();
    let request = ExtractionRequest {
        request_id: Some("r-7".into()),
        ..ExtractionRequest::new("A secret river.", "https://example.org/rivers")
    };
    let first = extract.extract(&request, None).await.unwrap();
    extract.extract(&request, None).await.unwrap();
    let change = extract.put_ontology(&ontology("stream"), None, "ada").await.unwrap();
    let page = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    let line = |event: &str| page.lines().find(|line| line.contains(event)).unwrap_or_default();
    let key = format!("idempotency_key=\"{}\"", first.identity.components.short());
    for (event, fields) in [
        (
            "extraction requested",
            &["ontology_id=", "text_length=15", "params_hash=", "request_id=\"r-7\""][..],
        ),
        ("cache miss", &["ontology_id="]),
        ("extraction complete", &["ontology_id=", "took_ms="]),
        ("cache hit", &["hit_source=\"result-cache\"", "cache_age_ms="]),
    ] {
        assert!(line(event).contains(&key), "{event:?} in\n{page}");
        for field in fields {
            assert!(line(event).contains(field), "{field} of {event:?} in\n{page}");
        }
    }
    let invalidated = line("its results are gone");
    for field in [
        "ontology_id=\"https://example.org/rivers\"".to_owned(),
        format!("old_version=\"{}\"", change.before.unwrap()),
        format!("new_version=\"{}\"", change.now.unwrap()),
        "entries_invalidated=2".to_owned(),
    ] {
        assert!(page.contains(&field), "{field} in {invalidated}");
    }
    assert!(!page.contains("secret"), "{page}");
}
