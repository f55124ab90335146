//! English endings, by simple rules. A form that no text has does no harm, so where two are
//! possible both are given.

/// Irregular verbs: base, past, participle.
const IRREGULAR: [(&str, &str, &str); 52] = [
    ("be", "was", "been"),
    ("bear", "bore", "born"),
    ("become", "became", "become"),
    ("begin", "began", "begun"),
    ("bring", "brought", "brought"),
    ("build", "built", "built"),
    ("buy", "bought", "bought"),
    ("catch", "caught", "caught"),
    ("choose", "chose", "chosen"),
    ("come", "came", "come"),
    ("cut", "cut", "cut"),
    ("draw", "drew", "drawn"),
    ("drive", "drove", "driven"),
    ("eat", "ate", "eaten"),
    ("fall", "fell", "fallen"),
    ("feed", "fed", "fed"),
    ("fight", "fought", "fought"),
    ("find", "found", "found"),
    ("fly", "flew", "flown"),
    ("get", "got", "got"),
    ("give", "gave", "given"),
    ("go", "went", "gone"),
    ("grow", "grew", "grown"),
    ("have", "had", "had"),
    ("hold", "held", "held"),
    ("keep", "kept", "kept"),
    ("know", "knew", "known"),
    ("lead", "led", "led"),
    ("leave", "left", "left"),
    ("lie", "lay", "lain"),
    ("lose", "lost", "lost"),
    ("make", "made", "made"),
    ("meet", "met", "met"),
    ("pay", "paid", "paid"),
    ("put", "put", "put"),
    ("rise", "rose", "risen"),
    ("run", "ran", "run"),
    ("see", "saw", "seen"),
    ("sell", "sold", "sold"),
    ("send", "sent", "sent"),
    ("set", "set", "set"),
    ("sing", "sang", "sung"),
    ("sit", "sat", "sat"),
    ("speak", "spoke", "spoken"),
    ("spend", "spent", "spent"),
    ("stand", "stood", "stood"),
    ("steal", "stole", "stolen"),
    ("take", "took", "taken"),
    ("teach", "taught", "taught"),
    ("think", "thought", "thought"),
    ("win", "won", "won"),
    ("write", "wrote", "written"),
];

/// The forms of one verb.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verb {
    /// As it is written after `they`, and with `-ing`.
    pub(super) plain: Vec<String>,
    /// As it is written after `she`, in the present and in the past.
    pub(super) finite: Vec<String>,
    /// As it is written after `was`.
    pub(super) participles: Vec<String>,
}

/// The plural forms of a noun, which is in lower case or as it is written.
pub(super) fn plurals(noun: &str) -> Vec<String> {
    if noun.ends_with(['s', 'x', 'z']) || noun.ends_with("ch") || noun.ends_with("sh") {
        return vec![format!("{noun}es")];
    }
    match noun.strip_suffix('y') {
        Some(stem) if ends_in_consonant(stem) => vec![format!("{stem}ies")],
        _ if noun.ends_with('o') => vec![format!("{noun}s"), format!("{noun}es")],
        _ => vec![format!("{noun}s")],
    }
}

/// The forms of the verb that this word, in lower case, is a form of.
pub(super) fn verb(word: &str) -> Verb {
    let forms = |(base, past, participle): &(&str, &str, &str)| {
        [*base, *past, *participle].contains(&word) || third(base).contains(&word.to_owned())
    };
    let mut verb = Verb::default();
    // `found` is the past of `find` and a verb of its own.
    for (base, past, participle) in IRREGULAR.iter().filter(|row| forms(row)) {
        verb.plain.extend([(*base).to_owned()]);
        verb.plain.extend(with_ing(base));
        verb.finite.extend(third(base));
        verb.finite.push((*past).to_owned());
        verb.participles.push((*participle).to_owned());
    }
    if verb.plain.is_empty() {
        for base in bases(word) {
            verb.plain.push(base.clone());
            verb.plain.extend(with_ing(&base));
            verb.finite.extend(third(&base));
            verb.finite.extend(with_ed(&base));
            verb.participles.extend(with_ed(&base));
        }
    }
    verb
}

/// The base forms that a word may come from.
fn bases(word: &str) -> Vec<String> {
    let own = |stem: &str| vec![stem.to_owned()];
    if word.len() < 4 {
        return own(word);
    }
    if let Some(stem) = word.strip_suffix("ies").or_else(|| word.strip_suffix("ied")) {
        return vec![format!("{stem}y")];
    }
    if let Some(stem) = word.strip_suffix("ing").or_else(|| word.strip_suffix("ed")) {
        let mut bases = vec![stem.to_owned(), format!("{stem}e")];
        bases.extend(undoubled(stem));
        return bases;
    }
    let hissing = ["sses", "shes", "ches", "xes", "zzes", "oes"];
    if hissing.iter().any(|ending| word.ends_with(ending)) {
        return own(&word[..word.len() - 2]);
    }
    let singular = ["ss", "us", "is"].iter().any(|ending| word.ends_with(ending));
    match word.strip_suffix('s') {
        Some(stem) if !singular => own(stem),
        _ => own(word),
    }
}

fn third(base: &str) -> Vec<String> {
    match base {
        "be" => ["is", "are", "was", "were"].map(str::to_owned).to_vec(),
        "have" => vec!["has".to_owned()],
        _ => plurals(base),
    }
}

fn with_ed(base: &str) -> Vec<String> {
    if base.ends_with('e') {
        return vec![format!("{base}d")];
    }
    match base.strip_suffix('y') {
        Some(stem) if ends_in_consonant(stem) => vec![format!("{stem}ied")],
        _ => doubled(base, "ed"),
    }
}

fn with_ing(base: &str) -> Vec<String> {
    if let Some(stem) = base.strip_suffix("ie") {
        return vec![format!("{stem}ying")];
    }
    match base.strip_suffix('e') {
        Some(stem) if base.len() > 2 && !stem.ends_with('e') => vec![format!("{stem}ing")],
        _ => doubled(base, "ing"),
    }
}

/// The word with an ending, and also with its last consonant doubled, where that is possible.
fn doubled(base: &str, ending: &str) -> Vec<String> {
    let mut forms = vec![format!("{base}{ending}")];
    let mut last = base.chars().rev();
    if let (Some(c), Some(b), Some(a)) = (last.next(), last.next(), last.next())
        && is_consonant(c)
        && !matches!(c, 'w' | 'x' | 'y')
        && !is_consonant(b)
        && is_consonant(a)
    {
        forms.push(format!("{base}{c}{ending}"));
    }
    forms
}

/// `stop` from `stopp`.
fn undoubled(stem: &str) -> Option<String> {
    let mut last = stem.chars().rev();
    let (one, other) = (last.next()?, last.next()?);
    (one == other && is_consonant(one)).then(|| stem[..stem.len() - one.len_utf8()].to_owned())
}

fn ends_in_consonant(stem: &str) -> bool {
    stem.chars().next_back().is_some_and(is_consonant)
}

fn is_consonant(c: char) -> bool {
    c.is_alphabetic() && !matches!(c.to_ascii_lowercase(), 'a' | 'e' | 'i' | 'o' | 'u')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_end_in_s_es_or_ies() {
        assert_eq!(plurals("river"), ["rivers"]);
        assert_eq!(plurals("city"), ["cities"]);
        assert_eq!(plurals("bay"), ["bays"]);
        assert_eq!(plurals("church"), ["churches"]);
        assert_eq!(plurals("volcano"), ["volcanos", "volcanoes"]);
    }

    #[test]
    fn a_verb_is_inflected_from_whatever_form_it_is_given_in() {
        for given in ["play", "plays", "played", "playing"] {
            let verb = verb(given);
            let all: Vec<_> = verb.plain.iter().chain(&verb.finite).map(String::as_str).collect();
            for form in ["play", "plays", "played", "playing"] {
                assert!(all.contains(&form), "{given} has no {form}: {all:?}");
            }
        }
    }

    #[test]
    fn endings_follow_the_spelling() {
        let has = |word: &str, form: &str| {
            let verb = verb(word);
            verb.plain.iter().chain(&verb.finite).any(|other| other == form)
        };
        assert!(has("marry", "married") && has("marries", "marrying"));
        assert!(has("locate", "located") && has("located", "locates"));
        assert!(has("stop", "stopped") && has("stopped", "stops"));
        assert!(has("teaches", "taught") && has("crosses", "crossed"));
        assert!(has("visit", "visited") && has("run", "running"));
    }

    #[test]
    fn irregular_verbs_are_known_by_any_form() {
        assert_eq!(verb("wrote"), verb("writes"));
        assert_eq!(verb("wrote").participles, ["written"]);
        assert!(verb("lies").plain.contains(&"lying".to_owned()));
        assert!(verb("has").finite.contains(&"had".to_owned()));
    }

    #[test]
    fn founded_is_a_form_of_found_and_not_of_find() {
        assert!(verb("founded").finite.contains(&"founds".to_owned()));
        assert!(!verb("founded").finite.contains(&"finds".to_owned()));
    }
}
