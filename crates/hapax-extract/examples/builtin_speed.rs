//! Measures how fast the built-in extractor reads English prose with an ontology of about a
//! thousand names.
//!
//! `cargo run --release --example builtin_speed -p hapax-extract`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use hapax_extract::{
    Builtin, Chunk, ChunkGraph, Class, Individual, Ontology, Property, PropertyScope, chunks, merge,
};

/// Common words, the most common first.
const WORDS: &str = "the of and to in a is that was it for on as with his he be at by had not are \
    but from or have an they which one you were her all she there would their we him been has when \
    who will more no if out so said what up its about into than them can only other new some could \
    time these two may then do first any my now such like our over man me even most made after \
    also did many before must through back years where much your way well down should because each \
    just those people too how little state good very make world still own see men work long get \
    here between both life being under never day same another know while last might us great old \
    year off come since against go came right used take three house states himself few use during \
    without again place around however home small found thought went say part once general high \
    upon school every does got united left number course war until always away something fact \
    though water less public put think almost hand enough far took head yet government system \
    better set told nothing night end why called didn't eyes find going look asked later knew \
    point next program city business give group toward young days let room word present several \
    order national possible rather second face per among form important often things early white \
    case large big need four within felt along children saw best church ever least power";

const SYLLABLES: [&str; 20] = [
    "ka", "ber", "lin", "mor", "ta", "gen", "win", "dor", "sel", "by", "ham", "ness", "ri", "vo",
    "lan", "der", "mün", "os", "el", "quay",
];

const VERBS: [&str; 50] = [
    "flows through",
    "plays for",
    "crosses",
    "wrote",
    "founded by",
    "was born in",
    "lives in",
    "works for",
    "owns",
    "has capital",
    "teaches",
    "leads",
    "joins",
    "builds",
    "designed",
    "visits",
    "sells",
    "buys",
    "knows",
    "married",
    "rises in",
    "lies on",
    "is part of",
    "borders",
    "governs",
    "funds",
    "supplies",
    "treats",
    "causes",
    "contains",
    "employs",
    "represents",
    "studies at",
    "competes with",
    "acquired",
    "invented",
    "discovered",
    "composed",
    "directed",
    "stars in",
    "published",
    "translated",
    "named after",
    "member of",
    "located in",
    "speaks",
    "opposes",
    "supports",
    "replaced",
    "follows",
];

/// A pseudo-random generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below
    }

    fn word(&mut self, syllables: usize) -> String {
        (0..2 + self.roll(syllables)).map(|_| SYLLABLES[self.roll(20)]).collect()
    }

    fn name(&mut self) -> String {
        let word = self.word(2);
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
    }
}

fn ontology(dice: &mut Dice) -> Ontology {
    let class = |number: usize| format!("http://example.org/class/{number}");
    let classes = (0..150).map(|number| Class {
        id: class(number),
        label: Some(dice.word(2)),
        sub_class_of: (number > 0).then(|| class(number / 3)).into_iter().collect(),
        ..Class::default()
    });
    let classes = classes.collect();
    let properties = VERBS.iter().enumerate().map(|(number, verb)| Property {
        id: format!("http://example.org/property/{number}"),
        label: Some((*verb).to_owned()),
        domain: vec![class(number % 3)],
        range: vec![class(number % 2)],
        ..Property::default()
    });
    let individuals = (0..800).map(|number| Individual {
        id: format!("http://example.org/thing/{number}"),
        label: Some(if number % 2 == 0 {
            dice.name()
        } else {
            format!("{} {}", dice.name(), dice.name())
        }),
        types: vec![class(dice.roll(150))],
        ..Individual::default()
    });
    let individuals = individuals.collect();
    Ontology { classes, properties: properties.collect(), individuals, ..Ontology::default() }
}

/// Prose in which about one word in twenty is a name, and one sentence in three has a verb pattern.
fn prose(dice: &mut Dice, ontology: &Ontology, bytes: usize) -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut text = String::with_capacity(bytes + 1000);
    while text.len() < bytes {
        for _ in 0..3 + dice.roll(6) {
            text.push_str("The");
            for _ in 0..8 + dice.roll(18) {
                text.push(' ');
                match dice.roll(60) {
                    0 | 1 => text.push_str(name(&ontology.individuals[dice.roll(800)].label)),
                    2 => text.push_str(name(&ontology.classes[dice.roll(150)].label)),
                    3 => text.push_str(VERBS[dice.roll(50)]),
                    _ => text.push_str(words[dice.roll(words.len()).min(dice.roll(words.len()))]),
                }
            }
            text.push_str(". ");
        }
        text.pop();
        text.push('\n');
    }
    text
}

fn name(label: &Option<String>) -> &str {
    label.as_deref().unwrap_or_default()
}

/// The best of five, in megabytes a second.
fn time<T>(what: &str, bytes: usize, mut run: impl FnMut() -> T) {
    let seconds = (0..5).map(|_| {
        let begun = Instant::now();
        black_box(run());
        begun.elapsed().as_secs_f64()
    });
    let best = seconds.fold(f64::INFINITY, f64::min);
    println!("{what:<36} {:>8.1} MB/s", bytes as f64 / 1e6 / best);
}

fn read(
    builtin: &Builtin,
    scope: &PropertyScope,
    ontology: &Ontology,
    chunk: &Chunk<'_>,
) -> ChunkGraph {
    let mentions = builtin.mentions(ontology, chunk.text).unwrap_or_default();
    let properties = scope.between(&mentions);
    let statements =
        builtin.statements(ontology, chunk.text, &mentions, &properties).unwrap_or_default();
    ChunkGraph { mentions, statements }
}

fn main() {
    let mut dice = Dice(7);
    let ontology = Arc::new(ontology(&mut dice));
    let text = prose(&mut dice, &ontology, 8_000_000);
    let pieces = chunks(&text, 2000);
    let scope = PropertyScope::new(&ontology);
    let (builtin, stranger) = (Builtin::new(), Builtin::new());
    let begun = Instant::now();
    builtin.learn(&ontology).unwrap_or_else(|error| panic!("{error}"));
    println!("compiling the ontology: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    let find = |builtin: &Builtin, ontology: &Ontology| -> Vec<ChunkGraph> {
        pieces.iter().map(|chunk| read(builtin, &scope, ontology, chunk)).collect()
    };
    let found = find(&builtin, &ontology);
    let graph = merge(&pieces, &found, &ontology);
    let relations: usize = found.iter().map(|found| found.statements.len()).sum();
    let mentions: usize = found.iter().map(|found| found.mentions.len()).sum();
    println!(
        "{} bytes, {} chunks, {mentions} mentions, {relations} relations",
        text.len(),
        pieces.len()
    );
    println!("{} entities and {} relations merged", graph.entities.len(), graph.relations.len());
    time("chunks", text.len(), || chunks(&text, 2000));
    time("entities", text.len(), || {
        pieces.iter().flat_map(|chunk| builtin.mentions(&ontology, chunk.text)).count()
    });
    time("entities, scope, relations", text.len(), || find(&builtin, &ontology));
    let other = Ontology::clone(&ontology);
    time("the same, ontology not learned", text.len(), || find(&stranger, &other));
    time("merge", text.len(), || merge(&pieces, &found, &ontology));
    time("everything", text.len(), || {
        let pieces = chunks(&text, 2000);
        let find = |chunk| read(&builtin, &scope, &ontology, chunk);
        let found: Vec<ChunkGraph> = pieces.iter().map(find).collect();
        merge(&pieces, &found, &ontology)
    });
}
