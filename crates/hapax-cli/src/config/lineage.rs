//! Sinks of lineage: OpenLineage, a catalog on disk, a graph.

use data_encoding::BASE64;
use hapax::canonical::canonical;
use hapax::json::Json;
use hapax::outbox::{OutboxConfig, Record, SinkSettings};
use hapax_pipeline::catalog::Catalog;
use hapax_pipeline::lineage::{cypher, openlineage};
use hapax_pipeline::projector::moment;
use hapax_pipeline::replay::PRODUCER;
use hapax_sinks::file::LinesFile;
use hapax_sinks::form::Form;
use hapax_sinks::webhook::{Webhook, WebhookSettings};
use http::HeaderValue;
use http::header::AUTHORIZATION;

use super::{Config, Kind};

impl Config {
    pub(super) fn add_lineage(
        &self,
        outbox: OutboxConfig,
        name: &str,
        kind: &Kind,
        settings: SinkSettings,
    ) -> Result<OutboxConfig, String> {
        let added = match kind {
            Kind::Openlineage { url: Some(url), path: None, token, allow_private } => {
                let bearer =
                    |token: &String| Ok::<_, String>(format!("Bearer {}", self.value(token)?));
                let authorization = token.as_ref().map(bearer).transpose()?;
                let form = Form::new(|record| {
                    written(record, |moment| openlineage::event(moment, PRODUCER))
                });
                let hook = self.posted(url, authorization, *allow_private, form, |_| Ok(()))?;
                outbox.sink_with(name, hook, settings)
            }
            Kind::Openlineage { url: None, path: Some(path), token: None, .. } => {
                let form = Form::new(|record| {
                    written(record, |moment| openlineage::event(moment, PRODUCER))
                });
                outbox.sink_with(name, LinesFile::new(self.beside(path)).form(form), settings)
            }
            Kind::Openlineage { .. } => return Err("give url, or path, and not both".into()),
            Kind::Catalog { path } => {
                outbox.sink_with(name, Catalog::new(self.beside(path)), settings)
            }
            Kind::Graph { url, user, password, allow_private } => {
                let basic = |(user, password): (&String, &String)| {
                    let pair = format!("{}:{}", self.value(user)?, self.value(password)?);
                    Ok::<_, String>(format!("Basic {}", BASE64.encode(pair.as_bytes())))
                };
                let authorization = user.as_ref().zip(password.as_ref()).map(basic).transpose()?;
                let form = Form::new(|record| {
                    written(record, |moment| cypher::transaction(&cypher::statements(moment)))
                });
                let hook = self.posted(url, authorization, *allow_private, form, without_errors)?;
                outbox.sink_with(name, hook, settings)
            }
            _ => return Err("is not a sink for lineage".into()),
        };
        added.map_err(|error| error.to_string())
    }

    fn posted(
        &self,
        url: &str,
        authorization: Option<String>,
        allow_private: bool,
        form: Form,
        accepts: fn(&[u8]) -> Result<(), String>,
    ) -> Result<Webhook, String> {
        let header = authorization.map(|text| HeaderValue::from_str(&text));
        let header = header.transpose().map_err(|_| "the credentials cannot be sent".to_owned())?;
        let headers = header.into_iter().map(|value| (AUTHORIZATION, value)).collect();
        let settings =
            WebhookSettings { form, headers, accepts, allow_private, ..WebhookSettings::default() };
        Webhook::new(&self.value(url)?, settings).map_err(|error| error.to_string())
    }
}

/// The document of a moment of lineage; `None` for other events.
fn written(
    record: &Record,
    document: impl Fn(&hapax_pipeline::Moment) -> Json,
) -> Result<Option<String>, String> {
    match moment(record) {
        Some(moment) => canonical(&document(&moment)).map(Some).map_err(|error| error.to_string()),
        None => Ok(None),
    }
}

/// A graph answers 200 with a list of errors.
fn without_errors(answer: &[u8]) -> Result<(), String> {
    let answer = Json::parse(answer).map_err(|error| format!("the answer is not JSON: {error}"))?;
    let errors = answer.get("errors").and_then(Json::as_array).unwrap_or_default();
    match errors.first().and_then(|error| error.get("code")).and_then(Json::as_str) {
        Some(code) => Err(format!("the graph refused it: {code}")),
        None if errors.is_empty() => Ok(()),
        None => Err("the graph refused it".into()),
    }
}
