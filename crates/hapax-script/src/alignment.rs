//! Matches the elements of two lists.

/// The match of an element. Numbers are indexes in the list before and in the list after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElementChange {
    Kept(usize, usize),
    Changed(usize, usize),
    Added(usize),
    Removed(usize),
}

/// Matches elements in order, so that the sum of `likeness` is greatest; it is 0 for two elements
/// that cannot be the same. Unmatched elements between two kept ones count as changed, pair by
/// pair.
pub(crate) fn align(
    before: usize,
    after: usize,
    likeness: impl Fn(usize, usize) -> u32,
) -> Vec<ElementChange> {
    let width = after + 1;
    let mut best = vec![0u32; (before + 1) * width];
    for i in (0..before).rev() {
        for j in (0..after).rev() {
            let skip = best[(i + 1) * width + j].max(best[i * width + j + 1]);
            let keep = match likeness(i, j) {
                0 => 0,
                likeness => likeness + best[(i + 1) * width + j + 1],
            };
            best[i * width + j] = skip.max(keep);
        }
    }
    let (mut i, mut j) = (0, 0);
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    let mut changes = Vec::new();
    while i < before && j < after {
        let here = best[i * width + j];
        let like = likeness(i, j);
        if like > 0 && here == like + best[(i + 1) * width + j + 1] {
            settle(&mut removed, &mut added, &mut changes);
            changes.push(ElementChange::Kept(i, j));
            (i, j) = (i + 1, j + 1);
        } else if here == best[(i + 1) * width + j] {
            removed.push(i);
            i += 1;
        } else {
            added.push(j);
            j += 1;
        }
    }
    removed.extend(i..before);
    added.extend(j..after);
    settle(&mut removed, &mut added, &mut changes);
    changes
}

fn settle(removed: &mut Vec<usize>, added: &mut Vec<usize>, changes: &mut Vec<ElementChange>) {
    let pairs = removed.len().min(added.len());
    let changed = removed.iter().zip(added.iter());
    changes.extend(changed.map(|(i, j)| ElementChange::Changed(*i, *j)));
    changes.extend(removed.drain(..).skip(pairs).map(ElementChange::Removed));
    changes.extend(added.drain(..).skip(pairs).map(ElementChange::Added));
}
