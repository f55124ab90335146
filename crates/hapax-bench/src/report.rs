//! The figures of a run, and the bars that they must clear.

use serde_json::{Map, Value, json};

/// One figure and, where there is one, the bar it must clear.
#[derive(Debug, Clone)]
pub struct Line {
    /// The measurement; empty if the line belongs to the one before.
    pub label: String,
    /// The figure.
    pub figure: String,
    /// The baseline of the same run.
    pub beside: String,
    /// The bar; empty if there is none.
    pub bar: String,
    /// Whether the figure clears the bar.
    pub holds: Option<bool>,
}

/// The measurements of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// The measurements in their order, for people.
    pub lines: Vec<Line>,
    /// Figures by their names.
    pub figures: Map<String, Value>,
    /// Ratios, and other numbers with a bar, by their names.
    pub ratios: Map<String, Value>,
}

impl Report {
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.into(), json!(round(value)));
    }

    /// A figure that stands on its own.
    pub(crate) fn fact(&mut self, label: impl Into<String>, name: &str, value: f64, unit: &str) {
        self.figure(name, value);
        let figure = format!("{} {unit}", human(value));
        self.lines.push(Line {
            label: label.into(),
            figure,
            beside: String::new(),
            bar: String::new(),
            holds: None,
        });
    }

    /// A ratio, or another number with a bar to clear.
    pub(crate) fn ratio(
        &mut self,
        label: impl Into<String>,
        name: &str,
        value: f64,
        beside: String,
        bar: Bar,
    ) {
        self.ratios.insert(name.into(), json!(round(value)));
        let (bar, holds) = match bar {
            Bar::AtLeast(least) => (format!("≥ {}", human(least)), Some(value >= least)),
            Bar::Below(most) => (format!("< {}", human(most)), Some(value < most)),
            Bar::None => (String::new(), None),
        };
        self.lines.push(Line { label: label.into(), figure: human(value), beside, bar, holds });
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Bar {
    AtLeast(f64),
    Below(f64),
    None,
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Three figures are all that a noisy machine can promise.
pub(crate) fn human(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => {
            let digits = format!("{:.0}", (value / 100.0).round() * 100.0);
            let mut out = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at) % 3 == 0 {
                    out.push(',');
                }
                out.push(digit);
            }
            out
        }
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
