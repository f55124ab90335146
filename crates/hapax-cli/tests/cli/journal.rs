//! The journal: verified, altered behind its back, proved to third parties.

use std::os::unix::fs::FileExt as _;

use super::LedgerDir;

fn with_three_effects() -> LedgerDir {
    let dir = LedgerDir::new();
    for key in ["one", "two", "three"] {
        dir.hapax(&["run", "-k", key, "--", "echo", key]).exits(0);
    }
    dir
}

/// Proves K-13: one byte changed in the file is found, and the entry is named.
#[test]
fn one_changed_byte_is_found_and_the_entry_named() {
    let dir = with_three_effects();
    let verified = dir.hapax(&["journal", "verify"]).exits(0);
    assert_eq!(verified.out, "intact: 6 entries under 3 signed heads; 0 not sealed yet\n");
    let entries: Vec<_> = {
        let listed = dir.hapax(&["journal", "list", "--json"]).exits(0);
        listed
            .out
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .collect()
    };
    // The attempt of the second effect's entries is in its record and in entries 3 and 4.
    let attempt = entries[2]["attempt"].as_str().unwrap().trim_start_matches("att_");
    let attempt = data_encoding::HEXLOWER.decode(attempt.as_bytes()).unwrap();
    let database = dir.path("hapax.db");
    let bytes = std::fs::read(&database).unwrap();
    let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&attempt)).collect();
    let file = std::fs::File::options().write(true).open(&database).unwrap();
    let mut named = Vec::new();
    for at in places {
        file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
        let found = dir.hapax(&["journal", "verify"]);
        if found.code != Some(0) {
            let found = found.exits(78).says("changed behind the ledger's back");
            named.extend(
                found
                    .out
                    .lines()
                    .filter(|line| line.starts_with("damaged: entry"))
                    .map(str::to_owned),
            );
            let doctor = dir.hapax(&["doctor", "--deep", "--json"]).exits(78).json();
            assert_eq!(doctor["healthy"], false);
        }
        file.write_all_at(&[bytes[at]], at as u64).unwrap();
    }
    named.sort();
    assert_eq!(
        named,
        ["damaged: entry 3 (leaf 2) was altered", "damaged: entry 4 (leaf 3) was altered"]
    );
    dir.hapax(&["journal", "verify"]).exits(0);
}

/// Proves K-13: removed, reordered and forged entries are found too.
#[test]
fn entries_removed_or_swapped_are_found() {
    let tampering = [
        ("DELETE FROM journal WHERE id = 3", "leaf 2 was removed"),
        ("DELETE FROM journal WHERE id = 6", "leaf 5 was removed"),
        (
            "UPDATE journal SET id = iif(id = 2, 1000, 5 - id) WHERE id IN (2, 3); UPDATE journal SET id = 3 WHERE id = 1000",
            "entry 2 (leaf 1) was altered",
        ),
        ("UPDATE journal SET note = 'forged' WHERE id = 1", "entry 1 (leaf 0) was altered"),
        ("UPDATE head SET note = replace(note, '4', '5') WHERE size = 4", "head of size 4"),
        ("UPDATE tile SET hashes = zeroblob(length(hashes))", "tile 0/0"),
    ];
    for (statement, expected) in tampering {
        let dir = with_three_effects();
        let db = rusqlite::Connection::open(dir.path("hapax.db")).unwrap();
        let triggers: Vec<String> = db
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        for trigger in triggers {
            db.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
        }
        db.execute_batch(statement).unwrap();
        drop(db);
        let found = dir.hapax(&["journal", "verify"]).exits(78);
        assert!(found.out.contains(expected), "{statement}: {found:?}");
    }
}

/// Proves K-13: an exported proof verifies without the database, and a forged one does not.
#[test]
fn a_proof_is_checked_without_the_ledger() {
    let dir = with_three_effects();
    let proof = dir.hapax(&["journal", "prove", "4"]).exits(0);
    let document = proof.json();
    let public_key = document["public_key"].as_str().unwrap();
    let elsewhere = LedgerDir::new();
    let check = |text: &str| {
        std::fs::write(elsewhere.path("proof.json"), text).unwrap();
        elsewhere.hapax(&["journal", "verify", "--proof", "proof.json", "--public-key", public_key])
    };
    let valid = check(&proof.out).exits(0);
    assert!(valid.out.starts_with("valid: entry 4 is in the journal of hapax/"), "{valid:?}");
    assert!(!elsewhere.path("hapax.db").exists());
    for member in ["encoded", "checkpoint", "leaf", "path"] {
        let mut forged = document.clone();
        forged[member] = match member {
            "leaf" => 2.into(),
            "path" => serde_json::json!([]),
            "encoded" => {
                let other = dir.hapax(&["journal", "prove", "5"]).json();
                other["encoded"].clone()
            }
            _ => document[member].as_str().unwrap().replacen("\n6\n", "\n7\n", 1).into(),
        };
        check(&forged.to_string()).exits(78).says("does not hold");
    }
    dir.hapax(&["journal", "prove", "99"]).exits(64).says("the newest is 6");
}

/// Proves K-13: an export holds every entry, with the hash that the tree has for it.
#[test]
fn an_export_holds_every_entry() {
    let dir = with_three_effects();
    let exported = dir.hapax(&["journal", "export"]).exits(0);
    assert_eq!(exported.out.lines().count(), 6);
    let listed = dir.hapax(&["journal", "list", "--json", "--key", "two"]).exits(0);
    let lines: Vec<_> = listed.out.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| exported.out.contains(line)));
}
