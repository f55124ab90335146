//! Input that no client would send: fields, JSON, journal entries and proofs, made and mangled at
//! random. All of it follows from a seed.

use hapax_core::canonical::canonicalize;
use hapax_core::checkpoint::{Signer, Verifier};
use hapax_core::journal::Entry;
use hapax_core::json::Json;
use hapax_core::key::Key;
use hapax_core::merkle::{self, Hash, TILE, Tiles};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::report::Report;

/// Bytes that mean something to a JSON parser, or break it.
const TOKENS: [&str; 30] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\udc00",
    "\\n",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1e400",
    "9007199254740993",
    "1.5",
    "-",
    "e",
    ".",
    " ",
    "\n",
    "\u{feff}",
    "é",
    "\u{10ffff}",
    "a",
    "\"a\":",
];

fn text(dice: &mut SmallRng, most: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..dice.random_range(0..=most) {
        match dice.random_range(0..10) {
            0 => text.push(dice.random()),
            _ => text.extend(TOKENS[dice.random_range(0..TOKENS.len())].as_bytes()),
        }
    }
    text
}

/// A valid JSON value.
fn json(dice: &mut SmallRng, depth: u32) -> String {
    let many = |dice: &mut SmallRng| if depth == 0 { 0 } else { dice.random_range(0..4) };
    match dice.random_range(0..if depth == 0 { 4 } else { 6 }) {
        0 => "null".into(),
        1 => dice.random::<bool>().to_string(),
        2 => match dice.random_range(0..3) {
            0 => dice.random_range(-9_007_199_254_740_991i64..=9_007_199_254_740_991).to_string(),
            1 => format!("{:.7e}", f64::from(dice.random::<f32>())),
            _ => format!("{}", f64::from(dice.random::<i32>()) / 1024.0),
        },
        3 => format!("\"{}\"", word(dice)),
        4 => {
            let items: Vec<_> = (0..many(dice)).map(|_| json(dice, depth - 1)).collect();
            format!("[{}]", items.join(" , "))
        }
        _ => {
            let members: Vec<_> = (0..many(dice))
                .map(|nth| format!("\"{nth}{}\" : {}", word(dice), json(dice, depth - 1)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

fn word(dice: &mut SmallRng) -> String {
    let characters = ["a", "é", "\u{1f600}", "\\n", "\\u0041", "\\\"", "z", " ", "\u{e000}"];
    (0..dice.random_range(0..5))
        .map(|_| characters[dice.random_range(0..characters.len())])
        .collect()
}

/// Canonical JSON: a document has one canonical text, and that text reads back as the same.
pub fn canonical_json(cases: u64, seed: u64, report: &mut Report) {
    let mut dice = SmallRng::seed_from_u64(seed);
    for _ in 0..cases {
        let mut input = json(&mut dice, 4).into_bytes();
        let mangled = dice.random_range(0..3) == 0;
        if mangled {
            input = match dice.random_range(0..2) {
                0 => text(&mut dice, 24),
                _ => mangle(&mut dice, input),
            };
        }
        let canonical = canonicalize(&input);
        report.count("JSON documents read", 1);
        report.expect(mangled || canonical.is_ok(), || {
            format!("refused: {}", String::from_utf8_lossy(&input))
        });
        let Ok(canonical) = canonical else { continue };
        report.count("JSON documents written canonically", 1);
        let again = canonicalize(canonical.as_bytes());
        report.expect(again.as_deref() == Ok(&canonical), || {
            format!("not canonical: {canonical}, from {}", String::from_utf8_lossy(&input))
        });
        report.expect(Json::parse(&input).is_ok(), || "canonical, but not readable".into());
    }
}

fn mangle(dice: &mut SmallRng, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..dice.random_range(1..4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = dice.random_range(0..bytes.len());
        match dice.random_range(0..4) {
            0 => bytes[at] ^= 1 << dice.random_range(0..8),
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, dice.random()),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Keys: the same bytes, divided into fields in two ways, never give the same key; nor do fields
/// that contain a separator.
pub fn key_fields(cases: u64, seed: u64, report: &mut Report) {
    let mut dice = SmallRng::seed_from_u64(seed);
    for _ in 0..cases {
        let bytes: Vec<u8> =
            (0..dice.random_range(1..12)).map(|_| b"ab:|\0\x01"[dice.random_range(0..6)]).collect();
        let cuts = [(); 2].map(|()| {
            let mut ends = [(); 2].map(|()| dice.random_range(0..=bytes.len()));
            ends.sort_unstable();
            ends
        });
        let keys = cuts.map(|[first, second]| {
            let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            Key::derive("fuzz.v1", &[("a", parts[0]), ("b", parts[1]), ("c", parts[2])])
        });
        report.count("pairs of keys compared", 1);
        report.expect((cuts[0] == cuts[1]) == (keys[0] == keys[1]), || {
            format!("{bytes:?} cut at {cuts:?} gives {keys:?}")
        });
        let separator = [":", "|", ",", "\0", ""][dice.random_range(0..5)];
        let [x, y, z] = [(); 3].map(|()| ["", "a", "b", ":"][dice.random_range(0..4)]);
        let glued = |left: &str, right: &str| format!("{left}{separator}b{separator}{right}");
        let key =
            |a: &str, b: &str| Key::derive("fuzz.v1", &[("a", a.as_bytes()), ("b", b.as_bytes())]);
        let fields = [(glued(x, y), z.to_owned()), (x.to_owned(), glued(y, z))];
        let keys = [key(&fields[0].0, &fields[0].1), key(&fields[1].0, &fields[1].1)];
        report.count("pairs of keys compared", 1);
        report.expect((fields[0] == fields[1]) == (keys[0] == keys[1]), || {
            format!("{fields:?} give {keys:?}")
        });
    }
}

/// The journal: entries are read back as they were written, and a changed byte is either refused
/// or changes the leaf.
pub fn journal_entries(cases: u64, seed: u64, report: &mut Report) {
    let mut dice = SmallRng::seed_from_u64(seed);
    for _ in 0..cases {
        let entry = entry(&mut dice);
        let encoded = entry.encode();
        report.count("journal entries decoded", 1);
        report.expect(Entry::decode(&encoded).as_ref() == Some(&entry), || {
            format!("not read back: {entry:?}")
        });
        let mangled = mangle(&mut dice, encoded.clone());
        if let Some(other) = Entry::decode(&mangled).filter(|_| mangled != encoded) {
            report.count("mangled journal entries that could be read", 1);
            report.expect(other.leaf() != entry.leaf(), || {
                format!("{mangled:?} passes for {entry:?}")
            });
        }
    }
}

fn entry(dice: &mut SmallRng) -> Entry {
    use hapax_core::journal::EntryKind;
    use hapax_core::{attempt::AttemptId, effect::StateName, name::Namespace, time::Timestamp};
    let words = ["", "default", "a b", "é"];
    let text = |dice: &mut SmallRng| words[dice.random_range(0..4)].to_owned();
    Entry {
        id: dice.random(),
        at: Timestamp(dice.random()),
        namespace: Namespace::new(["default", "a", "b.c"][dice.random_range(0..3)]).expect("plain"),
        key: Key::from_bytes(dice.random()),
        event: EntryKind::ALL[dice.random_range(0..EntryKind::ALL.len())],
        state: StateName::ALL[dice.random_range(0..StateName::ALL.len())],
        attempt: AttemptId::from_bytes(dice.random()),
        generation: dice.random(),
        digest: dice.random::<bool>().then(|| dice.random()),
        actor: dice.random::<bool>().then(|| text(dice)),
        note: dice.random::<bool>().then(|| text(dice)),
    }
}

struct Tree(Vec<Vec<Hash>>);

impl Tree {
    fn of(leaves: &[Hash]) -> Self {
        let mut levels = vec![leaves.to_vec()];
        while let Some(last) = levels.last().filter(|level| level.len() >= TILE as usize) {
            let tiles = last.chunks_exact(TILE as usize);
            levels.push(tiles.filter_map(merkle::tile_root).collect());
        }
        Self(levels)
    }
}

impl Tiles for Tree {
    type Error = std::convert::Infallible;

    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, Self::Error> {
        let level = self.0.get(level as usize).map(Vec::as_slice).unwrap_or_default();
        let start = (index * TILE) as usize;
        let end = level.len().min(start + TILE as usize);
        Ok(level.get(start..end).unwrap_or_default().to_vec())
    }
}

/// Proofs: a right one is accepted, and one that was changed in any place is refused.
pub fn proofs(cases: u64, seed: u64, report: &mut Report) {
    let mut dice = SmallRng::seed_from_u64(seed);
    let signer = Signer::from_seed(&dice.random());
    let verifier = signer.verifier();
    for _ in 0..cases {
        let entries: Vec<Entry> =
            (0..dice.random_range(1..600)).map(|_| entry(&mut dice)).collect();
        let leaves: Vec<Hash> = entries.iter().map(Entry::leaf).collect();
        let size = leaves.len() as u64;
        let mut tree = Tree::of(&leaves);
        let root = merkle::range_hash(&mut tree, 0, size).expect("infallible").expect("a tree");
        let leaf = dice.random_range(0..size);
        let path = merkle::inclusion_proof(&mut tree, leaf, size).expect("infallible");
        let proof = hapax::Proof {
            entry: entries[leaf as usize].clone(),
            leaf,
            path: path.expect("a path"),
            note: signer.sign(size, root),
        };
        report.count("right proofs", 1);
        report.expect(proof.verify(&verifier).is_ok(), || format!("not believed: {proof:?}"));
        forge(&mut dice, &proof, size, &verifier, report);
        consistency(&mut dice, &mut tree, size, &root, report);
    }
}

fn forge(
    dice: &mut SmallRng,
    proof: &hapax::Proof,
    size: u64,
    verifier: &Verifier,
    report: &mut Report,
) {
    let mut forged = Vec::new();
    for at in 0..proof.path.len() {
        let mut other = proof.clone();
        other.path[at][dice.random_range(0..32)] ^= 1 << dice.random_range(0..8);
        forged.push(other);
        let mut shorter = proof.clone();
        shorter.path.remove(at);
        forged.push(shorter);
        let mut longer = proof.clone();
        longer.path.insert(at, dice.random());
        forged.push(longer);
    }
    let mut entry = proof.clone();
    entry.entry.generation ^= 1;
    let moved = hapax::Proof { leaf: (proof.leaf + 1) % size.max(2), ..proof.clone() };
    let mut note = proof.note.clone().into_bytes();
    let at = dice.random_range(0..note.len());
    note[at] ^= 1 << dice.random_range(0..7);
    let note = hapax::Proof { note: String::from_utf8_lossy(&note).into_owned(), ..proof.clone() };
    forged.extend([entry, moved, note]);
    for forged in forged.iter().filter(|forged| *forged != proof) {
        report.count("forged proofs", 1);
        report.expect(forged.verify(verifier).is_err(), || format!("believed: {forged:?}"));
    }
}

fn consistency(dice: &mut SmallRng, tree: &mut Tree, size: u64, root: &Hash, report: &mut Report) {
    let old = dice.random_range(1..=size);
    let old_root = merkle::range_hash(tree, 0, old).expect("infallible").expect("a tree");
    let proof = merkle::consistency_proof(tree, old, size).expect("infallible").expect("a proof");
    report.count("right proofs of consistency", 1);
    report.expect(merkle::consistent(old, &old_root, size, root, &proof), || {
        format!("{old} to {size} is not believed")
    });
    for at in 0..proof.len() {
        let mut forged = proof.clone();
        forged[at][dice.random_range(0..32)] ^= 1;
        report.count("forged proofs of consistency", 1);
        report.expect(!merkle::consistent(old, &old_root, size, root, &forged), || {
            format!("{old} to {size} is believed with node {at} forged")
        });
    }
    let mut other = old_root;
    other[0] ^= 1;
    report.expect(!merkle::consistent(old, &other, size, root, &proof), || {
        format!("another root of size {old} is believed")
    });
}
