//! E-mail by SMTP.
//!
//! ```text
//!  connect ─▶ hello ─▶ login ─▶ envelope ─▶ content ─▶ final dot ─▶ reply
//!  └──────────── no message was sent ────────────────┘ └─ it may have been ─┘
//! ```
//!
//! The id of a message is made from the mutation's key, so a message that was accepted can be found
//! again in a mailbox. Either all recipients are accepted or no message is sent.

#[cfg(feature = "imap")]
mod mailbox;
mod reply;
mod settings;
mod wire;

#[cfg(feature = "imap")]
pub use mailbox::MailboxSettings;
pub use settings::{EmailSettings, Login, Tls};

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use hapax::{Claim, Key};
#[cfg(feature = "imap")]
use hapax::{Finding, Safety};
use hapax_core::json::Json;
use hapax_items::{Call, Difference, Operation, Plan, Tool, ToolError};
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use lettre::{Address, Message};

use crate::arguments::Arguments;
use crate::likeness::same_words;
use crate::{SettingsError, named};
use wire::Wire;

/// How long a subject may be, in bytes.
const LONGEST_SUBJECT: usize = 900;

/// Sends e-mail.
pub struct Email {
    settings: EmailSettings,
    from: Mailbox,
    wire: Wire,
    #[cfg(feature = "imap")]
    mailbox: Option<mailbox::MailboxClient>,
}

impl Email {
    /// A tool for one server and one sender.
    pub fn new(mut settings: EmailSettings) -> Result<Self, SettingsError> {
        settings.name = named(settings.name)?;
        let from: Mailbox = settings
            .from
            .parse()
            .map_err(|error| SettingsError(format!("{:?}: {error}", settings.from)))?;
        if Address::new("x", &settings.message_id_domain).is_err() {
            return Err(SettingsError(format!(
                "invalid message_id_domain {:?}",
                settings.message_id_domain
            )));
        }
        let wire = Wire::new(&settings)?;
        #[cfg(feature = "imap")]
        let mailbox = settings.mailbox.clone().map(mailbox::MailboxClient::new).transpose()?;
        Ok(Self {
            settings,
            from,
            wire,
            #[cfg(feature = "imap")]
            mailbox,
        })
    }

    fn message_id(&self, key: Key) -> String {
        format!("<{}@{}>", HEXLOWER.encode(key.as_bytes()), self.settings.message_id_domain)
    }

    fn message(&self, call: &Call) -> Result<Message, ToolError> {
        let wrong = |error: &dyn std::fmt::Display| {
            ToolError::logic(format!("the message cannot be made: {error}"))
        };
        let text = |name| call.plan.payload.get(name).and_then(Json::as_str);
        let mut builder = Message::builder()
            .from(self.from.clone())
            .message_id(Some(self.message_id(call.key)))
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("X-Idempotency-Key"),
                call.key.to_string(),
            ))
            .subject(text("subject").unwrap_or_default());
        for address in planned(&call.plan.identity, "to") {
            builder = builder.to(address.parse().map_err(|error| wrong(&error))?);
        }
        for address in planned(&call.plan.identity, "cc") {
            builder = builder.cc(address.parse().map_err(|error| wrong(&error))?);
        }
        let plain = lines(text("text").unwrap_or_default());
        let message = match text("html") {
            Some(html) => builder.multipart(MultiPart::alternative_plain_html(plain, lines(html))),
            None => builder.singlepart(SinglePart::plain(plain)),
        };
        message.map_err(|error| wrong(&error))
    }

    /// The recipients of a kind: in order, each once, with domains in lower case.
    fn recipients(&self, name: &str, value: Option<&Json>) -> Result<Vec<String>, ToolError> {
        let texts: Vec<&str> = match value {
            None => Vec::new(),
            Some(Json::String(one)) => vec![one],
            Some(Json::Array(several)) if several.iter().all(|one| one.as_str().is_some()) => {
                several.iter().filter_map(Json::as_str).collect()
            }
            Some(_) => {
                return Err(ToolError::logic(format!("{name:?} must be one or more addresses")));
            }
        };
        if texts.len() > self.settings.max_recipients {
            let most = self.settings.max_recipients;
            return Err(ToolError::logic(format!("a message has at most {most} recipients")));
        }
        let mut recipients = Vec::new();
        for text in texts {
            let address: Address = text.parse().map_err(|error| {
                let text: String = text.chars().take(200).collect();
                ToolError::logic(format!("invalid address {text:?}: {error}"))
            })?;
            recipients.push(format!("{}@{}", address.user(), address.domain().to_lowercase()));
        }
        recipients.sort();
        recipients.dedup();
        Ok(recipients)
    }
}

#[async_trait]
impl Tool for Email {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn operations(&self) -> &[Operation] {
        &[Operation { name: "send", mutates: true }]
    }

    fn plan(&self, operation: &str, arguments: &Json) -> Result<Plan, ToolError> {
        if operation != "send" {
            return Err(ToolError::logic(format!("{} cannot {operation}", self.settings.name)));
        }
        let arguments = Arguments::of(arguments, &["to", "cc", "subject", "text", "html"])?;
        let to = self.recipients("to", arguments.get("to"))?;
        if to.is_empty() {
            return Err(ToolError::logic("\"to\" is needed: an address or several"));
        }
        let mut cc = self.recipients("cc", arguments.get("cc"))?;
        cc.retain(|address| !to.contains(address));
        let (subject, text) = (arguments.text("subject")?, arguments.text("text")?);
        let html = arguments.optional_text("html")?;
        if subject.len() > LONGEST_SUBJECT || subject.contains(char::is_control) {
            return Err(ToolError::logic("a subject is one line of at most 900 bytes"));
        }
        if text.len() + html.map_or(0, str::len) > self.settings.max_bytes {
            let most = self.settings.max_bytes;
            return Err(ToolError::logic(format!("a message has at most {most} bytes")));
        }
        let list =
            |addresses: Vec<String>| Json::Array(addresses.into_iter().map(Json::String).collect());
        Ok(Plan {
            target: format!("smtp://{}:{}", self.settings.host, self.settings.port),
            identity: Json::object([("to", list(to)), ("cc", list(cc))]),
            payload: Json::object([
                ("subject", Json::text(subject)),
                ("text", Json::text(text)),
                ("html", html.map_or(Json::Null, Json::text)),
            ]),
        })
    }

    /// White space does not count. A different `html` is minor if the subject and the text are the
    /// same.
    fn compare_payload(&self, _operation: &str, recorded: &Json, requested: &Json) -> Difference {
        let alike = |name| {
            let text = |payload: &Json| {
                payload.get(name).and_then(Json::as_str).unwrap_or_default().to_owned()
            };
            same_words(&text(recorded), &text(requested))
        };
        match (alike("subject") && alike("text"), alike("html")) {
            (true, true) => Difference::Equivalent,
            (true, false) => Difference::Minor,
            (false, _) => Difference::Significant,
        }
    }

    #[cfg(feature = "imap")]
    fn safety(&self, _operation: &str) -> Safety {
        match &self.mailbox {
            Some(mailbox) => Safety::Reconcilable(mailbox.settling()),
            None => Safety::Opaque,
        }
    }

    async fn mutate(&self, call: &Call, _claim: &Claim) -> Result<Json, ToolError> {
        let message = self.message(call)?;
        self.wire.send(&message).await?;
        Ok(self.result(call.key))
    }

    #[cfg(feature = "imap")]
    async fn reconcile(&self, call: &Call) -> Finding {
        let Some(mailbox) = &self.mailbox else {
            return Finding::CannotTell("there is no mailbox to look in".into());
        };
        match mailbox.has(&self.message_id(call.key)).await {
            Ok(true) => crate::happened(&self.result(call.key)),
            Ok(false) => Finding::NotFound,
            Err(why) => Finding::CannotTell(why),
        }
    }

    fn check_by_hand(&self, call: &Call) -> String {
        let id = self.message_id(call.key);
        let to = planned(&call.plan.identity, "to").collect::<Vec<_>>().join(", ");
        format!("whether a message with Message-ID {id} was sent to {to}")
    }
}

impl Email {
    fn result(&self, key: Key) -> Json {
        Json::object([("messageId", Json::String(self.message_id(key)))])
    }
}

/// A text with the line ends of mail. lettre corrects other line ends too, but one by one and
/// moving all that follows each time: that takes minutes for a text of many lines.
fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

fn planned<'a>(identity: &'a Json, name: &str) -> impl Iterator<Item = &'a str> {
    identity.get(name).and_then(Json::as_array).unwrap_or_default().iter().filter_map(Json::as_str)
}
