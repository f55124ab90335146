//! `tidy --words`: prose and names that have to be decoded. Lists places to look at, and fails nothing.
//!
//! - public type names that are defined more than once, and type names that are participles
//! - *whoever, somebody, nobody*
//! - sentences that begin with *What*, *Who* or *Whose* and ask nothing
//! - sentences of more than 30 words

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// The longest sentence, in words.
const LONG: usize = 30;

const PRONOUNS: [&str; 4] = ["whoever", "somebody", "nobody", "whosoever"];
const OPENINGS: [&str; 4] = ["What", "Who", "Whose", "Whoever"];
/// Files whose types have the name of the noun that they carry: the wire and the command line.
const EDGES: [&str; 4] = ["/src/wire/", "/src/api", "/src/args", "crates/hapax-proof/"];
/// Each crate has an error of its own.
const EXPECTED: [&str; 1] = ["Error"];

/// Participles that are no nouns of the field. `Granted` and the like are variants, not types.
const PARTICIPLES: [&str; 14] = [
    "Told", "Asked", "Fed", "Found", "Sought", "Landed", "Said", "Heard", "Tended", "Shelved",
    "Begun", "Ended", "Kept", "Made",
];

pub(crate) fn words() -> Result<(), String> {
    let listed = Command::new("git").args(["ls-files", "*.rs", "*.md"]).output();
    let listed = listed.map_err(|error| format!("git: {error}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    // History keeps its words, and the requirements are those of the specification.
    let left_out = ["CHANGELOG.md", "docs/requirements.md", "docs/spec.md"];
    let files: Vec<&str> = listed.lines().filter(|file| !left_out.contains(file)).collect();
    let mut places = Vec::new();
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let is_code = file.ends_with(".rs");
        for (paragraph, line) in paragraphs(&text, is_code) {
            let found = judge(&paragraph);
            places.extend(found.into_iter().map(|finding| format!("{file}:{line}: {finding}")));
        }
        if is_code && !file.contains("/tests") {
            let is_edge = EDGES.iter().any(|edge| file.contains(edge));
            for (line, name, is_public) in types_in(&text) {
                let place = format!("{file}:{line}");
                if PARTICIPLES.contains(&name.as_str()) {
                    places.push(format!("{place}: the type {name} is no noun of the field"));
                }
                if is_public && !is_edge && !EXPECTED.contains(&name.as_str()) {
                    types.entry(name).or_default().push(place);
                }
            }
        }
    }
    for (name, defined) in types.iter().filter(|(_, defined)| defined.len() > 1) {
        places.push(format!("{name} is defined {} times: {}", defined.len(), defined.join(", ")));
    }
    places.iter().for_each(|place| println!("{place}"));
    println!("xtask: {} places to look at", places.len());
    Ok(())
}

/// The prose of a file: its comments, or its text, by paragraphs with the line of each. Code blocks, tables and
/// diagrams are no prose.
fn paragraphs(text: &str, is_code: bool) -> Vec<(String, usize)> {
    let (mut all, mut paragraph, mut fenced) = (Vec::new(), (String::new(), 0), false);
    for (nth, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let prose = match is_code {
            true => ["//!", "///", "//"].iter().find_map(|mark| line.strip_prefix(mark)),
            false => Some(line),
        };
        let prose = prose.map(str::trim).unwrap_or_default();
        let is_fence = prose.starts_with("```");
        fenced ^= is_fence;
        let is_prose = !fenced && !is_fence && !prose.starts_with(['|', '#', '<']);
        if prose.is_empty() || !is_prose {
            all.push(std::mem::take(&mut paragraph));
            continue;
        }
        if prose.starts_with("- ") {
            all.push(std::mem::take(&mut paragraph));
        }
        if paragraph.0.is_empty() {
            paragraph.1 = nth + 1;
        }
        paragraph.0 += " ";
        paragraph.0 += prose.trim_start_matches("- ");
    }
    all.push(paragraph);
    all.retain(|(text, _)| !text.is_empty());
    all
}

/// The findings in a paragraph.
fn judge(paragraph: &str) -> Vec<String> {
    let mut found = Vec::new();
    let prose: String = paragraph.split('`').step_by(2).collect();
    let lower = prose.to_lowercase();
    let is_word = |word: &&&str| lower.split(|c: char| !c.is_alphabetic()).any(|one| one == **word);
    found.extend(PRONOUNS.iter().filter(is_word).map(|word| format!("name the actor: {word}")));
    for sentence in prose.split_inclusive(['.', '?', '!', ':', ';']).map(str::trim) {
        let count = sentence.split_whitespace().count();
        let opening = sentence.split_whitespace().next().unwrap_or_default();
        if OPENINGS.contains(&opening) && !sentence.ends_with('?') {
            found.push(format!("subject first: {sentence}"));
        }
        if count > LONG {
            found.push(format!("{count} words: {sentence}"));
        }
    }
    found
}

/// The types that a file defines, with their lines, and whether each is public.
fn types_in(text: &str) -> Vec<(usize, String, bool)> {
    let mut types = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| ["struct", "enum", "trait"].contains(word));
        let before = |at: usize| words[..at].iter().all(|word| word.starts_with("pub"));
        if let Some(at) = at.filter(|at| before(*at))
            && let Some(name) = words.get(at + 1)
        {
            let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            types.push((nth + 1, name.to_owned(), words[0] == "pub"));
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_that_has_to_be_decoded_is_found() {
        let code =
            "/// Whoever asks\n/// is told.\nfn f() { // What is left.\n/// What is it?\n```";
        let found: Vec<_> =
            paragraphs(code, true).iter().flat_map(|(text, _)| judge(text)).collect();
        assert_eq!(found, ["name the actor: whoever", "subject first: Whoever asks is told."]);
        let long = format!("{}.", ["word"; 31].join(" "));
        assert_eq!(judge(&long).len(), 1);
        assert!(judge("`nobody` is a name.").is_empty());
        assert_eq!(
            types_in("pub(crate) struct Told<'a> {\n// struct No\n    pub enum Yes {}"),
            [(1, "Told".to_owned(), false), (3, "Yes".to_owned(), true)]
        );
    }
}
