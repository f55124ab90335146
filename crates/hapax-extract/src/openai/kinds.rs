//! Decides which relations are possible between classes, by which class is a kind of which.

use std::collections::HashMap;

use crate::kinds;
use crate::ontology::{Class, Ontology, Property};

pub(super) struct Kinds<'a> {
    classes: HashMap<&'a str, &'a Class>,
    kinds: kinds::Kinds,
}

impl<'a> Kinds<'a> {
    pub(super) fn of(ontology: &'a Ontology) -> Self {
        let classes = ontology.classes.iter().map(|class| (class.id.as_str(), class)).collect();
        Self { classes, kinds: kinds::Kinds::new(ontology) }
    }

    pub(super) fn has(&self, class: &str) -> bool {
        self.classes.contains_key(class)
    }

    /// Whether something of this class may be one of the wanted ones: it is one, a kind of one, or
    /// so general that it may turn out to be one. Anything may, if nothing is wanted.
    pub(super) fn fits(&self, class: &str, wanted: &[String]) -> bool {
        wanted.is_empty() || wanted.iter().any(|wanted| self.may_be(class, wanted))
    }

    /// Whether something of this class may be a subject of the property: by its domain, or because
    /// the class has it as its own.
    pub(super) fn may_begin(&self, property: &Property, class: &str) -> bool {
        self.fits(class, &property.domain)
            || self.classes.values().any(|owner| {
                owner.properties.contains(&property.id) && self.may_be(class, &owner.id)
            })
    }

    fn may_be(&self, class: &str, wanted: &str) -> bool {
        self.kinds.related(class, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_fits_where_it_or_a_kind_of_it_is_wanted_and_circles_end() {
        let class = |id: &str, parent: &str, own: &[&str]| Class {
            id: id.into(),
            sub_class_of: vec![parent.into()],
            properties: own.iter().map(|own| (*own).to_owned()).collect(),
            ..Class::default()
        };
        let ontology = Ontology {
            classes: vec![
                class("player", "person", &[]),
                class("person", "agent", &[]),
                class("agent", "person", &[]),
                class("club", "group", &["owns"]),
            ],
            ..Ontology::default()
        };
        let kinds = Kinds::of(&ontology);
        let wanted = |id: &str| [id.to_owned()];
        assert!(kinds.fits("player", &wanted("person")));
        assert!(kinds.fits("person", &wanted("player")));
        assert!(kinds.fits("player", &[]));
        assert!(kinds.fits("player", &wanted(kinds::THING)));
        assert!(!kinds.fits("player", &wanted("club")));
        let owns =
            Property { id: "owns".into(), domain: wanted("person").into(), ..Property::default() };
        assert!(kinds.may_begin(&owns, "club"));
        assert!(kinds.may_begin(&owns, "player"));
        let plays = Property { id: "plays".into(), ..owns };
        assert!(!kinds.may_begin(&plays, "club"));
    }
}
