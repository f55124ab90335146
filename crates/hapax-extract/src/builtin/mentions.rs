//! The mentions of a chunk: names that the ontology has, and unknown names beside the name of a
//! class.

use super::lexicon::{Lexicon, Name};
use super::named;
use super::phrase::Hit;
use super::word;
use crate::graph::Mention;

/// All mentions, in the order of the text. No two mentions overlap.
pub(super) fn mentions(lexicon: &Lexicon, text: &str) -> Vec<Mention> {
    let folded = word::fold(text);
    let admitted = |name: &Name, start, end| name.case.admits(&text[start..end]);
    let hits = lexicon.names.hits(&folded, admitted);
    let mut found: Vec<Mention> = Vec::with_capacity(hits.len());
    let mut at = 0;
    while let Some((hit, name)) = hits.get(at).and_then(|hit| Some((hit, meant(text, hit)?))) {
        at += 1;
        if !name.is_class {
            found.push(mention(name, &name.label, hit.start, hit.end));
            continue;
        }
        let next = hits.get(at).and_then(|next| Some((next, meant(text, next)?)));
        if let Some((next, individual)) = next
            && ["", " ", " of ", " of the "].contains(&&text[hit.end..next.start])
            && next.start > hit.end
            && is_one(lexicon, name, individual)
        {
            found.push(mention(individual, &individual.label, hit.start, next.end));
            at += 1;
            continue;
        }
        let limit = next.map_or(text.len(), |(next, _)| next.start);
        beside(lexicon, text, (hit, name), limit, &mut found);
    }
    found
}

/// Adds the mention that the name of a class makes together with the words beside it.
fn beside(
    lexicon: &Lexicon,
    text: &str,
    (hit, name): (&Hit<'_, Name>, &Name),
    limit: usize,
    found: &mut Vec<Mention>,
) {
    if let Some(last) = found.last_mut()
        && !name.plural
        && last.individual.is_some()
        && &text[last.end..hit.start] == " "
        && lexicon.types(last).iter().any(|class| lexicon.kinds.is_a(class, &name.class))
    {
        last.end = hit.end;
        return;
    }
    let floor = found.last().map_or(0, |last| last.end);
    let capital = text[hit.start..].starts_with(char::is_uppercase);
    let right = || named::after(text, hit.end, limit);
    let left = || {
        let left = named::before(text, hit.start, floor)?;
        (capital || named::is_sure(text, left)).then_some(left)
    };
    let own = if name.plural { None } else { right().or_else(left) };
    let (start, end) = own.unwrap_or((hit.start, hit.end));
    let called = own.map_or(name.label.as_str(), |(start, end)| &text[start..end]);
    found.push(mention(name, called, start.min(hit.start), end.max(hit.end)));
}

/// The meaning of a phrase here: the first one whose case fits the text.
fn meant<'p>(text: &str, hit: &Hit<'p, Name>) -> Option<&'p Name> {
    hit.meanings.iter().find(|name| name.case.admits(&text[hit.start..hit.end]))
}

/// Whether the individual is one of the class, as in `the city of London`.
fn is_one(lexicon: &Lexicon, class: &Name, individual: &Name) -> bool {
    !class.plural && !individual.is_class && lexicon.kinds.is_a(&individual.class, &class.class)
}

fn mention(name: &Name, called: &str, start: usize, end: usize) -> Mention {
    Mention {
        class: name.class.clone(),
        individual: (!name.is_class).then(|| name.iri.clone()),
        name: called.to_owned(),
        start,
        end,
    }
}
