//! Decides which names say idempotency key, and which say dedupe store.
//!
//! Names are compared word by word, never by substring, so `deduplicate_spaces` and
//! `pseudo_idem` say nothing.

/// The words of a name, in lower case: `seenRequestIDs` is seen, request, ids.
pub(crate) fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, &c) in chars.iter().enumerate() {
        if !c.is_alphanumeric() {
            words.push(String::new());
            continue;
        }
        let before = at.checked_sub(1).map(|at| chars[at]);
        let humps = before.is_some_and(|b| b.is_lowercase() || b.is_ascii_digit());
        // The last capital of a run starts a word, unless a plural s follows: HTTPServer, IDs.
        let next = (chars.get(at + 1).copied(), chars.get(at + 2).copied());
        let ends_run = before.is_some_and(char::is_uppercase)
            && next.0.is_some_and(char::is_lowercase)
            && !(next.0 == Some('s') && next.1.is_none_or(|c| !c.is_lowercase()));
        if c.is_uppercase() && (humps || ends_run) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether any word of a name is in a list.
pub(crate) fn has_any(name: &str, list: &str) -> bool {
    words(name).iter().any(|word| listed(list, word))
}

/// Whether a word is in a list of words with blanks between them.
pub(crate) fn listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

/// How surely a name means an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyName {
    /// `idempotency` alone.
    Bare,
    /// `idempotency_key`, `dedupe_id`, `replay_key`, ...
    Full,
}

const IDEMPOTENCY: &str = "idempotency idempotence";
const DEDUPE: &str = "dedupe dedup deduplication deduplicator deduper";
const KEY_NOUNS: &str = "key id token hash digest fingerprint uuid";

/// Words that may follow the key's own words: `idempotency_key_for(order)`, `dedupe_key_hex`.
const KEY_TAILS: &str = "for from of with by hash hex str string bytes value header";

/// Whether a name means an idempotency or dedupe key, and nothing after it changes the meaning.
pub(crate) fn key_name(name: &str) -> Option<KeyName> {
    let words = words(name);
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    for at in 0..words.len() {
        let noun = listed(KEY_NOUNS, word(at + 1));
        let (length, sure) = match word(at) {
            "idempotencykey" | "dedupekey" | "dedupkey" | "idemkey" => (1, KeyName::Full),
            w if noun && (listed(IDEMPOTENCY, w) || listed(DEDUPE, w)) => (2, KeyName::Full),
            "idem" | "idempotent" if noun => (2, KeyName::Full),
            "once" | "replay" if matches!(word(at + 1), "key" | "token") => (2, KeyName::Full),
            "request" if word(at + 1) == "key" => (2, KeyName::Full),
            w if listed(IDEMPOTENCY, w) => (1, KeyName::Bare),
            _ => continue,
        };
        let tail = word(at + length);
        if tail.is_empty() || listed(KEY_TAILS, tail) {
            return Some(sure);
        }
    }
    None
}

/// How long a thing lives, as far as its declaration shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lives {
    /// For one call of its function.
    Local,
    /// Longer: a field, a static, a type, a table.
    Long,
}

const DONE: &str = "seen processed handled delivered consumed already";

/// Words that must go with `already`: `already_sent`, not `already_warned`.
const DEEDS: &str = "sent seen done processed handled delivered charged paid published notified";

/// Things that come from outside, more than once.
const ARRIVALS: &str = "\
    request requests message messages msg msgs event events webhook webhooks command commands \
    payment payments delivery deliveries notification notifications";
const IDS: &str = "id ids key keys nonce nonces token tokens";
const STORES: &str =
    "cache store map set table index filter window entries records responses results log";

/// Whether a name means a memory of finished work.
pub(crate) fn store_name(name: &str, lives: Lives) -> bool {
    let words = words(name);
    let any_after = |at: usize, list: &str| words[at + 1..].iter().any(|word| listed(list, word));
    words.iter().enumerate().any(|(at, word)| match word.as_str() {
        w if listed(IDEMPOTENCY, w) || listed(DEDUPE, w) => {
            let is_qualified = [IDS, STORES, ARRIVALS].iter().any(|list| any_after(at, list));
            is_qualified || lives == Lives::Long && at + 1 == words.len()
        }
        "idem" | "idempotent" => any_after(at, IDS) || any_after(at, STORES),
        // A walk over a graph has its `seen_ids` too, for as long as it walks.
        w if listed(DONE, w) => {
            any_after(at, ARRIVALS)
                || lives == Lives::Long
                    && (any_after(at, IDS) || w == "already" && any_after(at, DEEDS))
        }
        _ => false,
    })
}

/// Whether a text such as `dedupe:{id}` names a dedupe store; for keys of a cache server.
pub(crate) fn store_text(text: &str) -> bool {
    let idempotent = |word: &String| {
        let word = word.as_str();
        listed(IDEMPOTENCY, word) || listed(DEDUPE, word) || word == "idem"
    };
    words(text).iter().any(idempotent) || store_name(text, Lives::Local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_humps_and_marks() {
        assert_eq!(words("seenRequestIDs"), ["seen", "request", "ids"]);
        assert_eq!(words("HTTPServer_v2"), ["http", "server", "v2"]);
        assert_eq!(words("X-Idempotency-Key"), ["x", "idempotency", "key"]);
        assert_eq!(words("Sha256"), ["sha256"]);
        assert_eq!(words("__"), Vec::<String>::new());
    }

    #[test]
    fn key_names_are_known_by_their_words() {
        for full in [
            "idempotency_key",
            "idempotencyKey",
            "Idempotency-Key",
            "IDEMPOTENCY_KEY",
            "idem_key",
            "dedupeId",
            "dedup_hash",
            "once_key",
            "request_key",
            "replayKey",
            "dedupe_key_for",
            "makeIdempotencyToken",
            "idempotent_id",
            "idempotencykey",
        ] {
            assert_eq!(key_name(full), Some(KeyName::Full), "{full}");
        }
        assert_eq!(key_name("idempotency"), Some(KeyName::Bare));
        for none in [
            "dedup",
            "deduplicate_spaces",
            "pseudo_idem",
            "idempotent",
            "idempotency_key_len",
            "idempotency_ttl",
            "cache_key",
            "request_id",
            "key",
            "predupe_key",
            "once",
            "",
        ] {
            assert_eq!(key_name(none), None, "{none}");
        }
    }

    #[test]
    fn store_names_depend_on_how_long_they_live() {
        for always in [
            "processed_messages",
            "seenRequests",
            "idempotency_keys",
            "dedupe_cache",
            "handled_webhook_ids",
            "idem_keys",
            "DEDUP_STORE",
        ] {
            assert!(store_name(always, Lives::Local), "{always}");
        }
        for long in ["seen_ids", "already_sent", "dedup", "idempotency", "processedKeys"] {
            assert!(store_name(long, Lives::Long), "{long}");
            assert!(!store_name(long, Lives::Local), "{long}");
        }
        for never in [
            "seen",
            "visited",
            "processed",
            "already_warned",
            "pages",
            "request_metrics",
            "pending_events",
        ] {
            assert!(!store_name(never, Lives::Long), "{never}");
        }
    }
}
