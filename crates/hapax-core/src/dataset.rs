//! What is declared of a dataset.

use std::collections::BTreeMap;

use crate::canonical::canonical;
use crate::guard::{self, Found, Guards, Kind};
use crate::json::Json;
use crate::outbox::{Event, Order};

/// The finest cells that places can be masked to.
const FINEST: u64 = 15;

/// A dataset, as those who answer for it declared it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Dataset {
    /// Places in it are told of only as cells of this H3 resolution.
    pub masked: Option<u8>,
    /// How those it is about want it treated; events about it say so under `care_label`.
    pub care_label: Option<String>,
    /// Events about it name under `governance_ref` what allows them.
    pub restricted: bool,
    /// Where in an event the key is by which it is ordered, as a JSON pointer; by dataset if
    /// there is none.
    pub order: Option<String>,
}

/// What events are judged by before they are recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registry {
    /// Which guards are up.
    pub guards: Guards,
    /// The datasets, by their names.
    pub datasets: BTreeMap<String, Dataset>,
}

/// Why a declaration cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DatasetError(String);

impl Dataset {
    /// The declaration as text.
    pub fn text(&self) -> String {
        let mut members = BTreeMap::new();
        let number = |n: u8| Json::parse(n.to_string().as_bytes()).ok();
        members.extend(self.masked.and_then(number).map(|n| ("masked", n)));
        members.extend(self.care_label.as_deref().map(|text| ("care_label", Json::text(text))));
        members.extend(self.restricted.then_some(("restricted", Json::Bool(true))));
        members.extend(self.order.as_deref().map(|text| ("order", Json::text(text))));
        let members = members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        // Small whole numbers and texts, which have a canonical form.
        canonical(&Json::Object(members)).unwrap_or_default()
    }

    /// Reads the text of a declaration.
    ///
    /// ```
    /// use hapax_core::dataset::Dataset;
    ///
    /// let wells = Dataset { masked: Some(7), care_label: Some("TK-NC".into()), ..Dataset::default() };
    /// assert_eq!(wells.text(), r#"{"care_label":"TK-NC","masked":7}"#);
    /// assert_eq!(Dataset::parse(&wells.text())?, wells);
    /// assert!(Dataset::parse(r#"{"masked": 16}"#).is_err());
    /// # Ok::<(), hapax_core::dataset::DatasetError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, DatasetError> {
        let json = Json::parse(text.as_bytes()).map_err(|error| DatasetError(error.to_string()))?;
        let Json::Object(members) = json else {
            return Err(DatasetError("a dataset is declared by an object".into()));
        };
        let mut dataset = Self::default();
        for (name, value) in members {
            let wrong = || DatasetError(format!("{name} cannot be that"));
            let text = || value.as_str().map(str::to_owned).ok_or_else(wrong);
            match name.as_str() {
                "masked" => {
                    let cells = value.as_u64().filter(|cells| *cells <= FINEST);
                    dataset.masked = Some(cells.ok_or_else(wrong)? as u8);
                }
                "care_label" => dataset.care_label = Some(text()?),
                "restricted" => dataset.restricted = value == Json::Bool(true),
                "order" => dataset.order = Some(text()?),
                _ => return Err(DatasetError(format!("a dataset has no {name}"))),
            }
        }
        dataset.flaw().map_or(Ok(dataset), |flaw| Err(DatasetError(flaw)))
    }

    /// What is wrong with it, if anything is.
    pub fn flaw(&self) -> Option<String> {
        if self.masked.is_some_and(|cells| u64::from(cells) > FINEST) {
            return Some(format!("masked is a resolution from 0 to {FINEST}"));
        }
        if self.care_label.as_ref().is_some_and(|label| label.is_empty() || label.len() > 255) {
            return Some("care_label has 1 to 255 bytes".into());
        }
        let pointer = |order: &String| order.starts_with('/') && order.len() <= 255;
        if !self.order.as_ref().is_none_or(pointer) {
            return Some("order is a JSON pointer of at most 255 bytes, such as /station".into());
        }
        None
    }

    fn inspect(&self, payload: &Json) -> Vec<Found> {
        let mut found = Vec::new();
        if self.masked.is_some() {
            guard::places(payload, &mut found);
        }
        let text = |name: &str| payload.get(name).and_then(Json::as_str).unwrap_or_default();
        let lacks = |name: &str, kind| Found { pointer: format!("/{name}"), kind };
        if self.care_label.as_ref().is_some_and(|label| text("care_label") != label) {
            found.push(lacks("care_label", Kind::CareLabel));
        }
        if self.restricted && text("governance_ref").trim().is_empty() {
            found.push(lacks("governance_ref", Kind::Governance));
        }
        found
    }
}

impl Registry {
    /// Everything that keeps an event from being recorded.
    pub fn inspect(&self, event: &Event) -> Vec<Found> {
        // What cannot be read was not written by us, and is looked at no closer.
        let Ok(payload) = Json::parse(event.payload.as_str().as_bytes()) else { return Vec::new() };
        let mut found = guard::inspect(&payload, self.guards);
        match self.datasets.get(&event.dataset) {
            Some(dataset) => found.extend(dataset.inspect(&payload)),
            None if self.guards.registered => {
                found.push(Found { pointer: String::new(), kind: Kind::Unregistered });
            }
            None => {}
        }
        found
    }

    /// What an event is ordered by, where it leaves that to its dataset.
    pub fn order(&self, event: &Event) -> Order {
        let pointer = match (&event.order, self.datasets.get(&event.dataset)) {
            (Order::Dataset, Some(Dataset { order: Some(pointer), .. })) => pointer,
            (order, _) => return order.clone(),
        };
        let payload = Json::parse(event.payload.as_str().as_bytes()).ok();
        let key = payload.as_ref().and_then(|payload| payload.pointer(pointer));
        match key.and_then(|key| canonical(key).ok()) {
            Some(key) if key.len() <= 255 => {
                Order::Key(format!("{}{pointer}={key}", event.dataset))
            }
            _ => Order::Dataset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Payload;

    fn registry(dataset: Dataset, registered: bool) -> Registry {
        let guards = Guards { registered, ..Guards::default() };
        Registry { guards, datasets: [("wells".to_owned(), dataset)].into() }
    }

    fn event(dataset: &str, payload: &str) -> Event {
        Event::new("measured", dataset, Payload::parse(payload.as_bytes()).unwrap())
    }

    /// Proves O-9: each refusal says where, and never what.
    #[test]
    fn datasets_are_guarded_as_they_are_declared() {
        let wells = Dataset {
            masked: Some(7),
            care_label: Some("TK-NC".into()),
            restricted: true,
            order: None,
        };
        let registry = registry(wells, true);
        let says = |dataset: &str, payload: &str| {
            let found = registry.inspect(&event(dataset, payload));
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            says("wells", r#"{"lat": 38.25, "care_label": "free"}"#),
            "exact coordinates at /lat, not its dataset's care_label at /care_label, \
             no governance reference at /governance_ref"
        );
        let good = r#"{"h3":"872830828ffffff","care_label":"TK-NC","governance_ref":"board/7"}"#;
        assert_eq!(says("wells", good), "");
        assert_eq!(says("other", good), "a dataset that nobody registered");
    }

    #[test]
    fn events_are_ordered_by_what_their_dataset_says() {
        let by = |order: &str| {
            registry(Dataset { order: Some(order.into()), ..Dataset::default() }, false)
        };
        let told = event("wells", r#"{"station": {"id": 7}, "list": ["a"]}"#);
        assert_eq!(by("/station/id").order(&told), Order::Key("wells/station/id=7".into()));
        assert_eq!(by("/list/0").order(&told), Order::Key(r#"wells/list/0="a""#.into()));
        assert_eq!(by("/none").order(&told), Order::Dataset);
        let free = Event { order: Order::Free, ..told };
        assert_eq!(by("/station/id").order(&free), Order::Free);
    }
}
