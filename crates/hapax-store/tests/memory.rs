//! The conformance suite on the in-memory store.

hapax_store::conformance!(|clock| hapax_store::MemoryStore::new(clock));
