//! The relations of a chunk: a verb pattern with a fitting mention on either side of it, in one
//! sentence.

use super::lexicon::{Lexicon, Reading};
use super::phrase::Hit;
use super::word;
use crate::graph::{Mention, Statement};
use crate::ontology::Property;
use crate::sentence;

/// How many mentions on either side of a pattern are tried.
const TRIED: usize = 16;

/// All relations that the text states by these properties between these mentions, in the order of
/// the text.
pub(super) fn statements(
    lexicon: &Lexicon,
    text: &str,
    mentions: &[Mention],
    properties: &[&Property],
) -> Vec<Statement> {
    let mut wanted = vec![false; lexicon.properties.len()];
    for number in properties.iter().filter_map(|property| lexicon.number(&property.id)) {
        wanted[number] = true;
    }
    let whole = |mention: &Mention| text.get(mention.start..mention.end).is_some();
    let mut order: Vec<usize> = (0..mentions.len()).filter(|&at| whole(&mentions[at])).collect();
    order.sort_by_key(|&at| (mentions[at].start, mentions[at].end));
    let mut found = Vec::new();
    let mut rest = order.as_slice();
    let mut ends = sentence::borders(text, 0, text.len());
    ends.push(text.len());
    for end in ends {
        let inside = rest.partition_point(|&at| mentions[at].start < end);
        // A full stop inside a name ends no sentence.
        if inside > 0 && mentions[rest[inside - 1]].end > end {
            continue;
        }
        let sentence = Sentence { lexicon, text, mentions, end, order: &rest[..inside] };
        rest = &rest[inside..];
        if sentence.order.len() > 1 {
            sentence.read(&wanted, &mut found);
        }
    }
    let place = |statement: &Statement| {
        (statement.start, statement.end, statement.subject, statement.object)
    };
    found.sort_by(|one, other| {
        place(one).cmp(&place(other)).then_with(|| one.property.cmp(&other.property))
    });
    found.dedup();
    found
}

/// A sentence and its mentions.
struct Sentence<'a> {
    lexicon: &'a Lexicon,
    text: &'a str,
    mentions: &'a [Mention],
    end: usize,
    order: &'a [usize],
}

impl Sentence<'_> {
    fn read(&self, wanted: &[bool], found: &mut Vec<Statement>) {
        let from = self.at(self.order[0]).end;
        let to = self.at(self.order[self.order.len() - 1]).start;
        if from >= to {
            return;
        }
        let folded = word::fold(&self.text[from..to]);
        let mut hits = self.lexicon.patterns.hits(&folded, |one, _, _| wanted[one.property]);
        for hit in &mut hits {
            (hit.start, hit.end) = (from + hit.start, from + hit.end);
        }
        hits.retain(|hit| !self.order.iter().any(|&at| covers(self.at(at), hit)));
        for (at, hit) in hits.iter().enumerate() {
            let limit = hits.get(at + 1).map_or(self.end, |next| next.start);
            for reading in hit.meanings.iter().filter(|reading| wanted[reading.property]) {
                self.state(hit, limit, *reading, found);
            }
        }
    }

    /// Adds the relations that one reading of a pattern states. Words from `limit` on, where the
    /// next pattern begins, belong to that pattern.
    fn state(
        &self,
        hit: &Hit<'_, Reading>,
        limit: usize,
        reading: Reading,
        found: &mut Vec<Statement>,
    ) {
        let mut turned = reading.turned;
        let mut from = hit.end;
        if reading.participle && is_passive(&self.text[..hit.start]) {
            let Some(by) = self.text[hit.end..limit].find(" by ") else { return };
            from = hit.end + by + 4;
            turned = !turned;
        }
        let ends = &self.lexicon.ends[reading.property];
        let (first, second) = match turned {
            false => (&ends.subjects, &ends.objects),
            true => (&ends.objects, &ends.subjects),
        };
        let left = |at: usize| self.lexicon.fits(self.at(at), first);
        let right = |at: usize| self.lexicon.fits(self.at(at), second);
        let begun = self.order.partition_point(|&at| self.at(at).start < hit.start);
        let before: Vec<usize> = self.order[..begun]
            .iter()
            .rev()
            .copied()
            .filter(|&at| self.at(at).end <= hit.start)
            .take(TRIED)
            .collect();
        let after: Vec<usize> = self.order[begun..]
            .iter()
            .copied()
            .filter(|&at| self.at(at).start >= from)
            .take_while(|&at| self.at(at).start < limit)
            .take(TRIED)
            .collect();
        let (Some(first), Some(second)) =
            (self.nearest(&before, left), self.nearest(&after, right))
        else {
            return;
        };
        if is_denied(&self.text[self.at(before[first]).end..hit.start]) {
            return;
        }
        for &left in self.listed(&before[first..], left) {
            for &right in self.listed(&after[second..], right) {
                if self.is_same(left, right) {
                    continue;
                }
                let (subject, object) = if turned { (right, left) } else { (left, right) };
                found.push(Statement {
                    subject,
                    property: self.lexicon.properties[reading.property].clone(),
                    object,
                    start: self.at(left).start,
                    end: self.at(right).end,
                });
            }
        }
    }

    /// The first mention that fits. If only its class is known, a named mention of a related class
    /// goes first: in `the Thames is a river that flows through London`, the Thames is the subject.
    fn nearest(&self, side: &[usize], fits: impl Fn(usize) -> bool) -> Option<usize> {
        let first = side.iter().position(|&at| fits(at))?;
        let nearest = self.at(side[first]);
        if !self.lexicon.is_unnamed(nearest) {
            return Some(first);
        }
        let same = |at: usize| {
            let types = self.lexicon.types(self.at(at));
            types.iter().any(|class| self.lexicon.kinds.related(class, &nearest.class))
        };
        let named = side
            .iter()
            .position(|&at| !self.lexicon.is_unnamed(self.at(at)) && fits(at) && same(at));
        named.or(Some(first))
    }

    /// The first mention and those that are listed with it: `Vienna, Budapest and Belgrade`.
    fn listed<'s>(&self, side: &'s [usize], fits: impl Fn(usize) -> bool) -> &'s [usize] {
        let goes_on = |pair: &[usize]| {
            let (one, other) = (self.at(pair[0]), self.at(pair[1]));
            let gap = (one.end.min(other.end), one.start.max(other.start));
            fits(pair[1])
                && self.text.get(gap.0..gap.1).is_some_and(is_list)
                && self.lexicon.is_unnamed(one) == self.lexicon.is_unnamed(other)
        };
        let more = side.windows(2).take_while(|pair| goes_on(pair)).count();
        &side[..=more]
    }

    fn is_same(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.at(one), self.at(other));
        (&one.class, &one.individual, &one.name) == (&other.class, &other.individual, &other.name)
    }

    fn at(&self, mention: usize) -> &Mention {
        &self.mentions[mention]
    }
}

/// Whether the pattern is only a part of the mention.
fn covers(mention: &Mention, hit: &Hit<'_, Reading>) -> bool {
    mention.start <= hit.start
        && hit.end <= mention.end
        && mention.end - mention.start > hit.end - hit.start
}

fn is_passive(before: &str) -> bool {
    let last = before.trim_end().rsplit(|c: char| !word::in_word(c)).next().unwrap_or_default();
    ["is", "are", "was", "were", "be", "been", "being"].contains(&last)
}

/// Whether the words between the subject and the verb deny it.
fn is_denied(between: &str) -> bool {
    let mut words = between.split(|c: char| !word::in_word(c) && !matches!(c, '\'' | '’'));
    words.any(|word| {
        matches!(word, "not" | "never" | "cannot" | "neither" | "nor" | "without")
            || word.ends_with("n't")
            || word.ends_with("n’t")
    })
}

/// Whether the words between two mentions make them a list.
fn is_list(between: &str) -> bool {
    let mut words = between.split([' ', ',']).filter(|word| !word.is_empty());
    let only = words.all(|word| matches!(word, "and" | "the" | "&"));
    only && between.contains([',', 'a', '&'])
}
