//! Extraction: which extractor reads texts, and how results are kept.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use hapax_extract::openai::{ApiKey, OpenAi, Prices, Settings};
use hapax_extract::{Builtin, Extractor};
use serde::Deserialize;

use super::{Config, humantime_text};
use crate::exit::Failed;

/// The section `[extraction]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extraction {
    /// `builtin` or `openai`.
    extractor: Option<ExtractorName>,
    /// How long results are kept, such as `7d`; or `forever`.
    ttl: Option<String>,
    /// How many bytes of results are kept.
    room: Option<u64>,
    /// The longest text, in bytes.
    longest_text: Option<usize>,
    /// The rest is for `openai`: its address and its credentials.
    base_url: Option<String>,
    /// `env:NAME`, `file:PATH` or the key itself.
    api_key: Option<String>,
    model: Option<String>,
    #[serde(default, with = "humantime_text")]
    timeout: Option<Duration>,
    calls_at_once: Option<usize>,
    calls_per_minute: Option<NonZeroU32>,
    /// The price of a million tokens, read and written, in the currency of the bill.
    input_price: Option<f64>,
    output_price: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExtractorName {
    Builtin,
    Openai,
}

impl Extraction {
    /// The first setting that is given and that the built-in extractor does not use.
    fn only_for_openai(&self) -> Option<&'static str> {
        let given = [
            ("base_url", self.base_url.is_some()),
            ("model", self.model.is_some()),
            ("api_key", self.api_key.is_some()),
            ("timeout", self.timeout.is_some()),
            ("calls_at_once", self.calls_at_once.is_some()),
            ("calls_per_minute", self.calls_per_minute.is_some()),
            ("input_price", self.input_price.is_some()),
            ("output_price", self.output_price.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(setting, _)| setting)
    }
}

impl Config {
    /// How results are kept.
    pub(crate) fn extraction(&self) -> Result<hapax_extract::Settings, Failed> {
        let (usual, section) = (hapax_extract::Settings::default(), &self.extraction);
        let ttl = match section.ttl.as_deref() {
            None => usual.ttl,
            Some("forever") => None,
            Some(text) => Some(humantime::parse_duration(text).map_err(|error| {
                self.misses("ttl", &format!("{error}; such as 7d, or forever"))
            })?),
        };
        Ok(hapax_extract::Settings {
            ttl,
            max_cache_bytes: section.room.unwrap_or(usual.max_cache_bytes),
            max_text_bytes: section.longest_text.unwrap_or(usual.max_text_bytes),
            ..usual
        })
    }

    /// The extractor that reads texts.
    pub(crate) fn extractor(&self) -> Result<Arc<dyn Extractor>, Failed> {
        let section = &self.extraction;
        match section.extractor.unwrap_or(ExtractorName::Builtin) {
            ExtractorName::Builtin => match section.only_for_openai() {
                Some(setting) => {
                    Err(self.misses(setting, "it is for extractor = \"openai\", and not builtin"))
                }
                None => Ok(Arc::new(Builtin::default())),
            },
            ExtractorName::Openai => Ok(Arc::new(self.openai()?)),
        }
    }

    fn openai(&self) -> Result<OpenAi, Failed> {
        let section = &self.extraction;
        let needed = |name: &str, value: &Option<String>| {
            value.clone().ok_or_else(|| self.misses(name, "openai needs it"))
        };
        let mut settings =
            Settings::new(needed("base_url", &section.base_url)?, needed("model", &section.model)?);
        if let Some(key) = &section.api_key {
            let key = self.value(key).map_err(|error| self.misses("api_key", &error))?;
            let key =
                ApiKey::new(&key).map_err(|error| self.misses("api_key", &error.to_string()))?;
            settings.api_key = Some(key);
        }
        settings.timeout = section.timeout.unwrap_or(settings.timeout);
        settings.max_concurrent_calls =
            section.calls_at_once.unwrap_or(settings.max_concurrent_calls);
        settings.requests_per_minute = section.calls_per_minute;
        let micros = |price: Option<f64>| (price.unwrap_or(0.0).clamp(0.0, 1e9) * 1e6) as u64;
        if section.input_price.is_some() || section.output_price.is_some() {
            settings.prices = Some(Prices {
                input_micros_per_million: micros(section.input_price),
                output_micros_per_million: micros(section.output_price),
            });
        }
        OpenAi::new(settings).map_err(|error| self.misses("base_url", &error.to_string()))
    }

    fn misses(&self, setting: &str, flaw: &str) -> Failed {
        Failed::usage(format!("{}: extraction.{setting}: {flaw}", self.path.display()))
            .next("docs/extraction.md has its settings.")
    }
}
