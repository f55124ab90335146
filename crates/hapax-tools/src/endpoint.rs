//! A service as a maintainer: evidence is posted to it as a signed webhook, and it answers with a
//! proposal.

use std::time::Duration;

use async_trait::async_trait;
use hapax_items::{MAX_PROPOSAL, Maintainer};
use hapax_sinks::http::{Client, Reach};
use hapax_sinks::webhook::{Secret, message};
use url::Url;

use crate::SettingsError;
use crate::http::resolve;

/// A service that repairs scripts.
pub struct Endpoint {
    url: Url,
    settings: EndpointSettings,
    client: Client,
}

/// How requests to a service are sent.
#[derive(Debug, Clone, Default)]
pub struct EndpointSettings {
    /// The secrets that sign questions; several while one is being replaced.
    pub secrets: Vec<Secret>,
    /// How long a question may take, including the answer.
    pub timeout: Duration,
    /// Whether the service may have a private address.
    pub allow_private: bool,
}

impl Endpoint {
    /// A service at this URL.
    pub fn new(url: &str, settings: EndpointSettings) -> Result<Self, SettingsError> {
        if settings.secrets.is_empty() {
            return Err(SettingsError("a maintainer at a URL needs a secret to sign with".into()));
        }
        let url = resolve(None, settings.allow_private, url)
            .map_err(|error| SettingsError(error.message))?;
        let reach =
            Reach { connect_timeout: settings.timeout, allow_private: settings.allow_private };
        let client = Client::new(reach)
            .map_err(|error| SettingsError(format!("no trusted certificates: {error}")))?;
        Ok(Self { url, settings, client })
    }
}

#[async_trait]
impl Maintainer for Endpoint {
    async fn propose(&self, id: &str, evidence: &str) -> Result<String, String> {
        let url = &self.url;
        let request = message(url.as_str(), id, &self.settings.secrets, evidence.to_owned())
            .map_err(|error| format!("{url} cannot be called: {error}"))?;
        let answer = self.client.send_alone(request, self.settings.timeout, MAX_PROPOSAL).await;
        let answer = answer.map_err(|why| format!("{url} did not answer: {why}"))?;
        if !answer.status.is_success() {
            return Err(format!("{url} answered {}", answer.status));
        }
        let body = answer.body.map_err(|why| format!("the answer of {url}: {why}"))?;
        String::from_utf8(body.into()).map_err(|_| format!("the answer of {url} is not UTF-8"))
    }
}
