//! Hands one message to a server, and tracks how far it has come.

use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use hapax_items::ToolError;
use hapax_sinks::excerpt::excerpt;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::{Response, Severity};
use lettre::{Address, Message};

use super::reply::{Phase, ReplyError, class};
use super::settings::{EmailSettings, Tls};
use crate::SettingsError;

/// How much of a message is written at a time, in bytes.
const PIECE: usize = 16 * 1024;

/// How much of a server's own words is passed on, in characters.
const QUOTED: usize = 300;

/// How long to wait for the reply to QUIT.
const GOODBYE: Duration = Duration::from_secs(5);

/// A client of one server.
pub(super) struct Wire {
    host: String,
    port: u16,
    tls: Tls,
    parameters: TlsParameters,
    credentials: Option<Credentials>,
    hello: ClientId,
    timeout: Duration,
}

/// How far a message has come; read after a timeout.
struct Progress(AtomicU8);

const PHASES: [Phase; 5] =
    [Phase::Hello, Phase::Login, Phase::Envelope, Phase::Content, Phase::Ended];

impl Progress {
    fn reached(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Release);
    }

    fn phase(&self) -> Phase {
        PHASES[usize::from(self.0.load(Ordering::Acquire))]
    }
}

/// Why a message was not taken.
enum Stop {
    Error(Error),
    /// A reply that does not fit the command.
    Unexpected(Response),
    /// The server cannot take this message.
    Unfit(&'static str),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Wire {
    pub(super) fn new(settings: &EmailSettings) -> Result<Self, SettingsError> {
        let wrong = |error: Error| SettingsError(chain(&error));
        let mut parameters = TlsParameters::builder(settings.host.clone());
        if let Some(pem) = &settings.trust {
            parameters =
                parameters.add_root_certificate(Certificate::from_pem(pem).map_err(wrong)?);
        }
        let login = settings.login.as_ref();
        Ok(Self {
            host: settings.host.clone(),
            port: settings.port,
            tls: settings.tls.checked(&settings.host)?,
            parameters: parameters.build_rustls().map_err(wrong)?,
            credentials: login
                .map(|login| Credentials::new(login.user.clone(), login.password.clone())),
            hello: ClientId::Domain(settings.message_id_domain.clone()),
            timeout: settings.timeout,
        })
    }

    /// Hands a message over. An error that is not indeterminate means that the server has not
    /// taken it.
    pub(super) async fn send(&self, message: &Message) -> Result<(), ToolError> {
        let progress = Progress(AtomicU8::new(0));
        let talk = tokio::time::timeout(self.timeout, self.talk(message, &progress)).await;
        let phase = progress.phase();
        match talk {
            Ok(Ok(mut connection)) => {
                // The message has been taken; a lost goodbye changes nothing.
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(GOODBYE, connection.quit()).await;
                });
                Ok(())
            }
            Ok(Err(stop)) => Err(stopped(phase, stop)),
            Err(_) => {
                let class = class(phase, ReplyError::Silent);
                let seconds = self.timeout.as_secs_f64();
                let message = format!("the server has not taken it within {seconds} s");
                Err(ToolError { class, message })
            }
        }
    }

    async fn talk(
        &self,
        message: &Message,
        progress: &Progress,
    ) -> Result<AsyncSmtpConnection, Stop> {
        let mut connection = self.connect().await?;
        if let Some(credentials) = &self.credentials {
            progress.reached(Phase::Login);
            connection.auth(&[Mechanism::Plain, Mechanism::Login], credentials).await?;
        }
        progress.reached(Phase::Envelope);
        let (content, envelope) = (message.formatted(), message.envelope());
        let mut options = Vec::new();
        let server = connection.server_info();
        let mut addresses = envelope.to().iter().chain(envelope.from());
        if addresses.any(|address| !<Address as AsRef<str>>::as_ref(address).is_ascii()) {
            if !server.supports_feature(Extension::SmtpUtfEight) {
                return Err(Stop::Unfit("the server takes only addresses in ASCII"));
            }
            options.push(MailParameter::SmtpUtfEight);
        }
        if !content.is_ascii() {
            if !server.supports_feature(Extension::EightBitMime) {
                return Err(Stop::Unfit("the server takes only messages in ASCII"));
            }
            options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        connection.command(Mail::new(envelope.from().cloned(), options)).await?;
        for recipient in envelope.to() {
            connection.command(Rcpt::new(recipient.clone(), Vec::new())).await?;
        }
        let go = connection.command(Data).await?;
        if !go.has_code(354) {
            return Err(Stop::Unexpected(go));
        }
        progress.reached(Phase::Content);
        // This runs when all pieces are written, and the final dot is not.
        let end = std::iter::from_fn(|| {
            progress.reached(Phase::Ended);
            None
        });
        let reply = connection.message_iter(content.chunks(PIECE).chain(end)).await?;
        match reply.code().severity {
            Severity::PositiveCompletion => Ok(connection),
            _ => Err(Stop::Unexpected(reply)),
        }
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let wrapped = (self.tls == Tls::Wrapper).then(|| self.parameters.clone());
        let server = (self.host.as_str(), self.port);
        let mut connection = AsyncSmtpConnection::connect_tokio1(
            server,
            Some(self.timeout),
            &self.hello,
            wrapped,
            None,
        )
        .await?;
        if self.tls == Tls::StartTls {
            connection.starttls(self.parameters.clone(), &self.hello).await?;
        }
        Ok(connection)
    }
}

fn stopped(phase: Phase, stop: Stop) -> ToolError {
    let (class, text) = match stop {
        Stop::Error(error) => {
            let text = error.source().map(ToString::to_string).unwrap_or_default();
            let reply_error = match error.status() {
                Some(code) => ReplyError::Refused { code: code.into(), text: &text },
                None if error.is_client() || is_distrust(&error) => ReplyError::Unfit,
                None => ReplyError::Silent,
            };
            (class(phase, reply_error), chain(&error))
        }
        Stop::Unexpected(reply) => {
            let text = reply.first_line().unwrap_or_default();
            let code = reply.code();
            let reply_error = ReplyError::Refused { code: code.into(), text };
            (class(phase, reply_error), format!("an unexpected reply: {code} {text}"))
        }
        Stop::Unfit(why) => (class(phase, ReplyError::Unfit), why.to_owned()),
    };
    let when = match phase {
        Phase::Hello => "connecting",
        Phase::Login => "logging in",
        Phase::Envelope => "naming sender and recipients",
        Phase::Content => "sending the content",
        Phase::Ended => "waiting for the server to take the message",
    };
    ToolError { class, message: format!("{when}: {}", excerpt(&text, QUOTED)) }
}

/// Whether TLS itself failed, and not the connection below it.
fn is_distrust(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(inner) = cause {
        let io = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if io.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        cause = inner.source();
    }
    error.is_tls()
}

fn chain(error: &Error) -> String {
    match error.source() {
        Some(cause) => {
            let (text, cause) = (error.to_string(), cause.to_string());
            if text.contains(&cause) { text } else { format!("{text}: {cause}") }
        }
        None => error.to_string(),
    }
}
