//! The declaration of a dataset.

use std::collections::BTreeMap;

use crate::canonical::canonical;
use crate::guard::{self, GuardFinding, Guards, Kind};
use crate::json::Json;
use crate::lock::LockKey;
use crate::outbox::{Event, Order};

/// The finest cells that places can be masked to.
const FINEST: u64 = 15;

/// A dataset, as its owner declared it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Dataset {
    /// The person or team that answers for it.
    pub owner: Option<String>,
    /// Events give its places only as H3 cells of this resolution.
    pub masked: Option<u8>,
    /// The label by which the people it is about say how to treat it. Its events repeat the label
    /// under `care_label`.
    pub care_label: Option<String>,
    /// Whether its events and operations must name, under `governance_ref`, what allows them.
    pub restricted: bool,
    /// Set if it belongs to a sovereign people or is a heritage. Its operations run one after the
    /// other, and are marked as sovereignty events.
    pub sovereignty: Option<Sovereignty>,
    /// A JSON pointer to the ordering key in an event's payload. Without one, its events are
    /// ordered by dataset.
    pub order: Option<String>,
    /// The JSON Schema that the input of its operations must satisfy.
    pub input_contract: Option<String>,
    /// The JSON Schema that their output must satisfy.
    pub output_contract: Option<String>,
    /// How many of its operations may fail.
    pub slo: Option<Slo>,
    /// The policy of an operation that finds the lock held.
    pub on_lock: LockPolicy,
    /// How often operations on it are tried again.
    pub retries: Retries,
    /// Whether a reviewer is asked when a lock, a guard or the last retry ends an operation.
    pub review: bool,
    /// How many shards of it can be worked on at once; 0 and 1 are the same.
    pub shards: u32,
}

/// The kind of a sovereign dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Sovereignty {
    Sovereign,
    Tribal,
    Heritage,
    Archaeology,
}

/// How many of the operations on a dataset may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slo {
    /// The length of the window.
    pub window_ms: u64,
    /// How many of a million operations have to succeed.
    pub objective_ppm: u32,
}

/// The policy of an operation that finds the dataset's lock held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LockPolicy {
    /// Skip the operation.
    Skip,
    /// Try again for a while, with exponential backoff and full jitter.
    #[default]
    Backoff,
    /// Ask a reviewer.
    Escalate,
}

/// How often an operation is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retries {
    /// Retries at once, within the attempt, after a transient error: three at the most.
    pub quick: u32,
    /// Retries of the whole operation, with the same inputs.
    pub again: u32,
    /// The longest pause before the first retry; each may be twice as long as the one before.
    pub base_ms: u64,
    /// The longest pause of all.
    pub cap_ms: u64,
}

impl Retries {
    /// The most quick retries there are.
    pub const MOST_QUICK: u32 = 3;
    /// The most retries of a whole operation.
    pub const MOST: u32 = 100;
}

impl Default for Retries {
    fn default() -> Self {
        Self { quick: Self::MOST_QUICK, again: 0, base_ms: 200, cap_ms: 30_000 }
    }
}

macro_rules! names {
    ($of:ident: $($variant:ident = $name:literal),+) => {
        impl $of {
            /// The name that it is declared by.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The value that a name stands for.
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}
names!(Sovereignty: Sovereign = "sovereign", Tribal = "tribal", Heritage = "heritage", Archaeology = "archaeology");
names!(LockPolicy: Skip = "skip", Backoff = "backoff", Escalate = "escalate");

/// The guards and declarations that events and operations are judged by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registry {
    /// The enabled guards.
    pub guards: Guards,
    /// The datasets, by their names.
    pub datasets: BTreeMap<String, Dataset>,
}

/// Why a declaration cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DatasetError(String);

/// Why an operation may not begin, or why its output does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A change to a sensitive dataset has no justification.
    #[error("care: {0}")]
    Care(String),
    /// The dataset is restricted, and the operation names no governance reference.
    #[error("sovereignty: {0}")]
    Sovereignty(String),
    /// Too many operations failed within the window.
    #[error("error budget: {failed} of {of} operations failed; {allowed} may")]
    Budget {
        /// How many failed.
        failed: u64,
        /// Of how many.
        of: u64,
        /// How many may.
        allowed: u64,
    },
    /// The input or the output breaks its contract.
    #[error("contract: {0}")]
    Contract(String),
    /// A check refused the operation.
    #[error("check: {0}")]
    Check(String),
    /// The dataset is not declared.
    #[error("registry: the dataset is not declared")]
    Unregistered,
    /// A reviewer was asked, and has not answered or has declined.
    #[error("review: {0}")]
    Review(String),
}

impl Refusal {
    /// The guard that refused.
    pub fn guard(&self) -> &'static str {
        match self {
            Self::Care(_) => "care",
            Self::Sovereignty(_) => "sovereignty",
            Self::Budget { .. } => "error_budget",
            Self::Contract(_) => "contract",
            Self::Check(_) => "check",
            Self::Unregistered => "registry",
            Self::Review(_) => "review",
        }
    }

    /// The argument that the caller left out, if that is the reason. The caller gives it: a reviewer
    /// has nothing to decide.
    pub fn missing_argument(&self) -> Option<&'static str> {
        match self {
            Self::Care(_) => Some("justification"),
            Self::Sovereignty(_) => Some("governance_ref"),
            Self::Budget { .. }
            | Self::Contract(_)
            | Self::Check(_)
            | Self::Unregistered
            | Self::Review(_) => None,
        }
    }

    /// The guard that refused, read from the recorded text of a refusal.
    pub fn guard_of(text: &str) -> Option<&'static str> {
        let guards =
            ["care", "sovereignty", "error_budget", "contract", "check", "registry", "review"];
        let (word, _) = text.split_once(": ")?;
        guards.into_iter().find(|guard| guard.replace('_', " ") == word)
    }
}

/// How operations on a dataset went within the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// How many ended.
    pub ended: u64,
    /// How many of them failed.
    pub failed: u64,
}

impl Slo {
    /// How many of this many operations may fail; one always may.
    pub fn allows(&self, ended: u64) -> u64 {
        let missing = u64::from(1_000_000u32.saturating_sub(self.objective_ppm));
        ended.saturating_mul(missing).div_ceil(1_000_000).max(1)
    }
}

impl Dataset {
    /// Whether a change to it has to be justified: it is sovereign, or its places are masked.
    pub fn is_sensitive(&self) -> bool {
        self.masked.is_some() || self.sovereignty.is_some()
    }

    /// The lock of an operation: its dataset and its type, with the shard if the dataset has
    /// shards. All operations on a sovereign dataset share one lock.
    pub fn lock(&self, name: &str, operation: &str, part: Option<&str>) -> LockKey {
        if self.sovereignty.is_some() {
            return LockKey::of(&[name]);
        }
        match part.filter(|_| self.shards > 1) {
            Some(part) => {
                let shard = LockKey::of(&[part]).0 % u64::from(self.shards);
                LockKey::of(&[name, operation, &shard.to_string()])
            }
            None => LockKey::of(&[name, operation]),
        }
    }

    /// Whether an operation on it may begin.
    pub fn admit(
        &self,
        justification: Option<&str>,
        governance_ref: Option<&str>,
        lately: Tally,
    ) -> Result<(), Refusal> {
        if let Some(allowed) = self.slo.map(|slo| slo.allows(lately.ended))
            && lately.failed > allowed
        {
            return Err(Refusal::Budget { failed: lately.failed, of: lately.ended, allowed });
        }
        let blank = |text: Option<&str>| text.is_none_or(|text| text.trim().is_empty());
        if self.is_sensitive() && blank(justification) {
            let what = "a change to this dataset needs a justification";
            return Err(Refusal::Care(what.into()));
        }
        if self.restricted && blank(governance_ref) {
            let what = "name what allows it: governance_ref";
            return Err(Refusal::Sovereignty(what.into()));
        }
        Ok(())
    }

    /// The declaration as text.
    pub fn text(&self) -> String {
        let default = Self::default();
        let text = |text: &Option<String>| text.as_deref().map(Json::text);
        let slo = self.slo.map(|slo| {
            Json::object([
                ("window_ms", Json::number(slo.window_ms)),
                ("objective_ppm", Json::number(slo.objective_ppm.into())),
            ])
        });
        let retries = (self.retries != default.retries).then(|| {
            let Retries { quick, again, base_ms, cap_ms } = self.retries;
            Json::object([
                ("quick", Json::number(quick.into())),
                ("again", Json::number(again.into())),
                ("base_ms", Json::number(base_ms)),
                ("cap_ms", Json::number(cap_ms)),
            ])
        });
        let on_lock = (self.on_lock != default.on_lock).then(|| self.on_lock.as_str());
        let members = [
            ("owner", text(&self.owner)),
            ("masked", self.masked.map(|cells| Json::number(cells.into()))),
            ("care_label", text(&self.care_label)),
            ("restricted", self.restricted.then_some(Json::Bool(true))),
            ("sovereignty", self.sovereignty.map(|whose| Json::text(whose.as_str()))),
            ("order", text(&self.order)),
            ("input_contract", text(&self.input_contract)),
            ("output_contract", text(&self.output_contract)),
            ("slo", slo),
            ("on_lock", on_lock.map(Json::text)),
            ("retries", retries),
            ("review", self.review.then_some(Json::Bool(true))),
            ("shards", (self.shards > 1).then(|| Json::number(self.shards.into()))),
        ];
        let there = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        // Every value here has a canonical form.
        canonical(&Json::Object(there.collect())).unwrap_or_default()
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
            dataset.put(&name, &value)?;
        }
        dataset.flaw().map_or(Ok(dataset), |flaw| Err(DatasetError(flaw)))
    }

    fn put(&mut self, name: &str, value: &Json) -> Result<(), DatasetError> {
        let wrong = || DatasetError(format!("{name} cannot be that"));
        let text = || value.as_str().map(str::to_owned).map(Some).ok_or_else(wrong);
        let truth = || if let Json::Bool(truth) = value { Ok(*truth) } else { Err(wrong()) };
        let number = |json: Option<&Json>| json.and_then(Json::as_u64).ok_or_else(wrong);
        let small = |json: Option<&Json>| u32::try_from(number(json)?).map_err(|_| wrong());
        match name {
            "owner" => self.owner = text()?,
            "masked" => {
                let cells = value.as_u64().filter(|cells| *cells <= FINEST);
                self.masked = Some(cells.ok_or_else(wrong)? as u8);
            }
            "care_label" => self.care_label = text()?,
            "restricted" => self.restricted = truth()?,
            "sovereignty" => {
                let whose = value.as_str().and_then(Sovereignty::named);
                self.sovereignty = Some(whose.ok_or_else(wrong)?);
            }
            "order" => self.order = text()?,
            "input_contract" => self.input_contract = text()?,
            "output_contract" => self.output_contract = text()?,
            "slo" => {
                let window_ms = number(value.get("window_ms"))?;
                let objective_ppm = small(value.get("objective_ppm"))?;
                self.slo = Some(Slo { window_ms, objective_ppm });
            }
            "on_lock" => {
                self.on_lock = value.as_str().and_then(LockPolicy::named).ok_or_else(wrong)?;
            }
            "retries" => {
                self.retries = Retries {
                    quick: small(value.get("quick"))?,
                    again: small(value.get("again"))?,
                    base_ms: number(value.get("base_ms"))?,
                    cap_ms: number(value.get("cap_ms"))?,
                }
            }
            "review" => self.review = truth()?,
            "shards" => self.shards = small(Some(value))?,
            _ => return Err(DatasetError(format!("a dataset has no {name}"))),
        }
        Ok(())
    }

    /// The first flaw of the declaration, if it has one.
    pub fn flaw(&self) -> Option<String> {
        if self.masked.is_some_and(|cells| u64::from(cells) > FINEST) {
            return Some(format!("masked is a resolution from 0 to {FINEST}"));
        }
        for (name, text) in [("care_label", &self.care_label), ("owner", &self.owner)] {
            if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > 255) {
                return Some(format!("{name} has 1 to 255 bytes"));
            }
        }
        let pointer = |order: &String| order.starts_with('/') && order.len() <= 255;
        if !self.order.as_ref().is_none_or(pointer) {
            return Some("order is a JSON pointer of at most 255 bytes, such as /station".into());
        }
        if self.sovereignty.is_some() && self.shards > 1 {
            return Some("a sovereign dataset is worked on as a whole: it has no shards".into());
        }
        if self.shards > Self::MOST_SHARDS {
            return Some(format!("at most {} shards", Self::MOST_SHARDS));
        }
        if self.retries.quick > Retries::MOST_QUICK || self.retries.again > Retries::MOST {
            let (quick, again) = (Retries::MOST_QUICK, Retries::MOST);
            return Some(format!("at most {quick} quick retries, and {again} of the whole"));
        }
        let objective = |slo: &Slo| {
            slo.objective_ppm <= 1_000_000 && (1..=Self::LONGEST_MS).contains(&slo.window_ms)
        };
        if !self.slo.as_ref().is_none_or(objective) {
            let most = Self::LONGEST_MS;
            return Some(format!(
                "an objective is a share from 0 to 1, over a window of at most {most} ms"
            ));
        }
        if self.retries.base_ms.max(self.retries.cap_ms) > Self::LONGEST_MS {
            return Some(format!("a pause between retries has at most {} ms", Self::LONGEST_MS));
        }
        for contract in [&self.input_contract, &self.output_contract].into_iter().flatten() {
            if contract.len() > Self::LARGEST_CONTRACT {
                return Some(format!("a contract has at most {} bytes", Self::LARGEST_CONTRACT));
            }
            if let Err(error) = Json::parse(contract.as_bytes()) {
                return Some(format!("a contract is a JSON Schema: {error}"));
            }
        }
        None
    }

    /// The longest window and the longest pause: ten years.
    pub const LONGEST_MS: u64 = 315_576_000_000;
    /// The most parts that a dataset can be worked on in.
    pub const MOST_SHARDS: u32 = 1_024;
    /// The largest contract, in bytes.
    pub const LARGEST_CONTRACT: usize = 256 * 1024;

    fn inspect(&self, payload: &Json) -> Vec<GuardFinding> {
        let mut found = if self.masked.is_some() { guard::places(payload) } else { Vec::new() };
        let text = |name: &str| payload.get(name).and_then(Json::as_str).unwrap_or_default();
        let lacks = |name: &str, kind| GuardFinding { pointer: format!("/{name}"), kind };
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
    /// The guards' objections to recording an event.
    pub fn inspect(&self, event: &Event) -> Vec<GuardFinding> {
        // hapax writes only payloads that it can read; any other is not inspected.
        let Ok(payload) = Json::parse(event.payload.as_str().as_bytes()) else { return Vec::new() };
        let mut found = guard::inspect(&payload, self.guards);
        match self.datasets.get(&event.dataset) {
            Some(dataset) => found.extend(dataset.inspect(&payload)),
            None if self.guards.registered => {
                found.push(GuardFinding { pointer: String::new(), kind: Kind::Unregistered });
            }
            None => {}
        }
        found
    }

    /// The order of an event. One that leaves it to its dataset gets the key that the dataset's
    /// pointer finds, if there is one.
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

    /// Proves O-9: each refusal names the place, and never the content.
    #[test]
    fn datasets_are_guarded_as_they_are_declared() {
        let wells = Dataset {
            masked: Some(7),
            care_label: Some("TK-NC".into()),
            restricted: true,
            ..Dataset::default()
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
        assert_eq!(says("other", good), "a dataset that is not registered");
    }

    #[test]
    fn a_recorded_refusal_names_its_guard() {
        let why = || "no".to_owned();
        for refusal in [
            Refusal::Care(why()),
            Refusal::Sovereignty(why()),
            Refusal::Budget { failed: 2, of: 2, allowed: 1 },
            Refusal::Contract(why()),
            Refusal::Check(why()),
            Refusal::Unregistered,
            Refusal::Review(why()),
        ] {
            assert_eq!(Refusal::guard_of(&refusal.to_string()), Some(refusal.guard()));
        }
        assert_eq!(Refusal::guard_of("caring: no"), None);
        assert_eq!(Refusal::guard_of("care"), None);
    }

    #[test]
    fn a_dataset_orders_its_events_by_its_declaration() {
        let by = |order: &str| {
            registry(Dataset { order: Some(order.into()), ..Dataset::default() }, false)
        };
        let event = event("wells", r#"{"station": {"id": 7}, "list": ["a"]}"#);
        assert_eq!(by("/station/id").order(&event), Order::Key("wells/station/id=7".into()));
        assert_eq!(by("/list/0").order(&event), Order::Key(r#"wells/list/0="a""#.into()));
        assert_eq!(by("/none").order(&event), Order::Dataset);
        let free = Event { order: Order::Free, ..event };
        assert_eq!(by("/station/id").order(&free), Order::Free);
    }

    /// Proves P-4, P-6 and P-13.
    #[test]
    fn a_sovereign_dataset_is_locked_as_a_whole_and_has_no_shards() {
        let plain = Dataset::default();
        assert_ne!(plain.lock("wells", "write", None), plain.lock("wells", "drop", None));
        assert_eq!(plain.lock("wells", "write", Some("a")), plain.lock("wells", "write", None));
        let tribal = Dataset { sovereignty: Some(Sovereignty::Tribal), ..Dataset::default() };
        assert_eq!(tribal.lock("wells", "write", Some("a")), tribal.lock("wells", "drop", None));
        let parts = Dataset { shards: 8, ..Dataset::default() };
        let locks: std::collections::BTreeSet<_> =
            (0..100).map(|n| parts.lock("wells", "write", Some(&n.to_string()))).collect();
        assert_eq!(locks.len(), 8);
        assert_eq!(parts.flaw(), None);
        assert!(Dataset { shards: 8, ..tribal }.flaw().is_some_and(|flaw| flaw.contains("shards")));
    }

    /// Proves P-9, P-14: an operation without its justification, its reference or an error budget
    /// does not begin.
    #[test]
    fn operations_are_admitted_on_the_terms_of_their_dataset() {
        let says = |dataset: &Dataset, why, by, failed, ended| {
            let admitted = dataset.admit(why, by, Tally { ended, failed });
            admitted.err().map(|refusal| refusal.to_string()).unwrap_or_default()
        };
        let masked = Dataset { masked: Some(5), ..Dataset::default() };
        assert!(says(&masked, Some(" "), None, 0, 0).starts_with("care: "));
        assert_eq!(says(&masked, Some("a new survey"), None, 9, 9), "");
        let restricted = Dataset { restricted: true, ..Dataset::default() };
        assert!(says(&restricted, None, None, 0, 0).starts_with("sovereignty: "));
        let slo = Some(Slo { window_ms: 1, objective_ppm: 990_000 });
        let strict = Dataset { slo, ..Dataset::default() };
        assert_eq!(says(&strict, None, None, 1, 1), "");
        assert_eq!(
            says(&strict, None, None, 3, 150),
            "error budget: 3 of 150 operations failed; 2 may"
        );
    }

    #[test]
    fn a_declaration_is_read_as_it_was_written() {
        let all = Dataset {
            owner: Some("hydrology".into()),
            masked: Some(7),
            care_label: Some("TK-NC".into()),
            restricted: true,
            sovereignty: Some(Sovereignty::Heritage),
            order: Some("/station".into()),
            input_contract: Some(r#"{"type":"object"}"#.into()),
            output_contract: Some("true".into()),
            slo: Some(Slo { window_ms: 60_000, objective_ppm: 995_000 }),
            on_lock: LockPolicy::Escalate,
            retries: Retries { quick: 1, again: 5, base_ms: 10, cap_ms: 20 },
            review: true,
            shards: 1,
        };
        assert_eq!(Dataset::parse(&all.text()), Ok(Dataset { shards: 0, ..all }));
        assert_eq!(Dataset::parse("{}"), Ok(Dataset::default()));
        for wrong in [
            r#"{"sovereignty":"mine"}"#,
            r#"{"shards":5000}"#,
            r#"{"retries":{"quick":4,"again":0,"base_ms":1,"cap_ms":1}}"#,
            r#"{"retries":{"quick":1,"again":0,"base_ms":1,"cap_ms":315576000001}}"#,
            r#"{"slo":{"window_ms":315576000001,"objective_ppm":1}}"#,
            r#"{"input_contract":"{"}"#,
            r#"{"no":1}"#,
        ] {
            assert!(Dataset::parse(wrong).is_err(), "{wrong}");
        }
    }
}
