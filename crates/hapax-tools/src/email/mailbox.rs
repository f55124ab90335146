//! Looking for a message in a mailbox, by IMAP.
//!
//! Four commands are enough: log in, open the mailbox without changing anything, search, log out.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hapax::Settling;
use hapax_sinks::excerpt::excerpt;
use imap_proto::{MailboxDatum, Response, Status};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::settings::{Login, Tls};
use crate::SettingsError;

/// How much a server may say to one command, in bytes.
const MOST: usize = 256 * 1024;

/// How much of a server's own words is passed on, in characters.
const QUOTED: usize = 300;

/// The mailbox in which messages that were sent can be found again.
#[derive(Debug, Clone)]
pub struct MailboxSettings {
    /// The IMAP server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is secured.
    pub tls: Tls,
    /// Certificates to trust beside those of the machine, as PEM.
    pub trust: Option<Vec<u8>>,
    /// The account on it, in ASCII.
    pub login: Login,
    /// The mailbox to search, such as `Sent`; in ASCII, as IMAP has it.
    pub mailbox: String,
    /// How long a lookup may take.
    pub timeout: Duration,
    /// How long a message may be on its way to the mailbox.
    pub settling: Duration,
}

impl MailboxSettings {
    /// The mailbox `Sent` on a server with TLS.
    pub fn new(host: impl Into<String>, login: Login) -> Self {
        Self {
            host: host.into(),
            port: 993,
            tls: Tls::Wrapper,
            trust: None,
            login,
            mailbox: "Sent".into(),
            timeout: Duration::from_secs(30),
            settling: Duration::from_secs(300),
        }
    }
}

/// Looks for messages.
pub(super) struct MailboxClient {
    settings: MailboxSettings,
    server: ServerName<'static>,
    connector: TlsConnector,
    /// The commands that log in and open the mailbox.
    login: String,
    examine: String,
}

impl MailboxClient {
    pub(super) fn new(settings: MailboxSettings) -> Result<Self, SettingsError> {
        settings.tls.checked(&settings.host)?;
        let server = ServerName::try_from(settings.host.clone())
            .map_err(|error| SettingsError(format!("{:?}: {error}", settings.host)))?;
        let unquotable = |what: &str| SettingsError(format!("{what} must be plain ASCII"));
        let Login { user, password } = &settings.login;
        let user = quoted(user).ok_or_else(|| unquotable("the name of the mailbox's user"))?;
        let password = quoted(password).ok_or_else(|| unquotable("the mailbox's password"))?;
        let mailbox = quoted(&settings.mailbox).ok_or_else(|| unquotable("a mailbox's name"))?;
        let connector = TlsConnector::from(Arc::new(trusting(settings.trust.as_deref())?));
        let (login, examine) = (format!("LOGIN {user} {password}"), format!("EXAMINE {mailbox}"));
        Ok(Self { settings, server, connector, login, examine })
    }

    pub(super) fn settling(&self) -> Settling {
        Settling::AfterMs(u64::try_from(self.settings.settling.as_millis()).unwrap_or(u64::MAX))
    }

    /// Whether a message with this id is in the mailbox.
    pub(super) async fn has(&self, message_id: &str) -> Result<bool, String> {
        let timeout = self.settings.timeout;
        let looked = tokio::time::timeout(timeout, self.look(message_id)).await;
        let looked = looked.unwrap_or_else(|_| {
            Err(MailboxError::Protocol(format!("no answer within {} s", timeout.as_secs_f64())))
        });
        looked.map_err(|why| format!("the mailbox: {why}"))
    }

    async fn look(&self, message_id: &str) -> Result<bool, MailboxError> {
        let stream = TcpStream::connect((self.settings.host.as_str(), self.settings.port)).await?;
        let secure = |stream| self.connector.connect(self.server.clone(), stream);
        match self.settings.tls {
            Tls::None => self.search(Session::open(stream).await?, message_id).await,
            Tls::Wrapper => {
                self.search(Session::open(secure(stream).await?).await?, message_id).await
            }
            Tls::StartTls => {
                let mut session = Session::open(stream).await?;
                session.command("STARTTLS").await?;
                if !session.unparsed.is_empty() {
                    // An attacker on the way may have sent this, to be taken for the server inside
                    // TLS.
                    return Err(MailboxError::Protocol(
                        "the server sent data before TLS began".into(),
                    ));
                }
                let stream = secure(session.stream).await?;
                self.search(Session { stream, unparsed: Vec::new(), tag: 1 }, message_id).await
            }
        }
    }

    async fn search(
        &self,
        mut session: Session<impl AsyncRead + AsyncWrite + Unpin>,
        message_id: &str,
    ) -> Result<bool, MailboxError> {
        session.command(&self.login).await?;
        session.command(&self.examine).await?;
        let id = quoted(message_id).ok_or_else(|| MailboxError::Protocol("no such id".into()))?;
        let found = session.command(&format!("UID SEARCH HEADER Message-ID {id}")).await?;
        // The answer is known; a lost goodbye changes nothing.
        let _ = session.stream.write_all(b"Z LOGOUT\r\n").await;
        Ok(found > 0)
    }
}

/// Why a lookup has no answer.
enum MailboxError {
    Io(io::Error),
    Protocol(String),
}

impl From<io::Error> for MailboxError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for MailboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Protocol(why) => f.write_str(&excerpt(why, QUOTED)),
        }
    }
}

/// A connection to the server.
struct Session<S> {
    stream: S,
    /// Bytes from the server that were not parsed yet.
    unparsed: Vec<u8>,
    tag: u32,
}

/// The meaning of a response for a command.
enum Step {
    More,
    Found(usize),
    Done,
    Failed(String),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Waits for the greeting.
    async fn open(stream: S) -> Result<Self, MailboxError> {
        let mut session = Self { stream, unparsed: Vec::new(), tag: 0 };
        loop {
            match session.next("")? {
                Some(Step::Failed(why)) => return Err(MailboxError::Protocol(why)),
                Some(_) => return Ok(session),
                None => drop(session.receive().await?),
            }
        }
    }

    /// Sends a command, and waits until the server has completed it. Returns how many messages a
    /// search found.
    async fn command(&mut self, words: &str) -> Result<usize, MailboxError> {
        self.tag += 1;
        let tag = format!("A{}", self.tag);
        self.stream.write_all(format!("{tag} {words}\r\n").as_bytes()).await?;
        self.stream.flush().await?;
        let (mut found, mut received) = (0, 0);
        loop {
            match self.next(&tag)? {
                Some(Step::More) => {}
                Some(Step::Found(count)) => found += count,
                Some(Step::Done) => return Ok(found),
                Some(Step::Failed(why)) => return Err(MailboxError::Protocol(why)),
                None => received += self.receive().await?,
            }
            if received > MOST {
                return Err(MailboxError::Protocol("the response is too long".into()));
            }
        }
    }

    /// The next response, if all of it has arrived.
    fn next(&mut self, tag: &str) -> Result<Option<Step>, MailboxError> {
        let (rest, step) = match Response::parse(&self.unparsed) {
            Ok((rest, response)) => (rest.len(), step(response, tag)),
            Err(error) if error.is_incomplete() => return Ok(None),
            Err(_) if !self.unparsed.ends_with(b"\n") => return Ok(None),
            Err(_) => {
                let text = String::from_utf8_lossy(&self.unparsed).into_owned();
                return Err(MailboxError::Protocol(format!("unreadable response: {text}")));
            }
        };
        self.unparsed.drain(..self.unparsed.len() - rest);
        Ok(Some(step))
    }

    async fn receive(&mut self) -> Result<usize, MailboxError> {
        match self.stream.read_buf(&mut self.unparsed).await? {
            0 => Err(MailboxError::Protocol("the server went away".into())),
            count => Ok(count),
        }
    }
}

fn step(response: Response<'_>, expected: &str) -> Step {
    let text = |words: Option<std::borrow::Cow<'_, str>>| words.unwrap_or_default().into_owned();
    match response {
        Response::MailboxData(MailboxDatum::Search(ids)) => Step::Found(ids.len()),
        Response::Data { status: Status::Bye, outcome } => Step::Failed(text(outcome.information)),
        Response::Done { tag, status: Status::Ok, .. } if tag.0 == expected => Step::Done,
        Response::Done { outcome, .. } => Step::Failed(text(outcome.information)),
        _ => Step::More,
    }
}

/// A text in quotes, as IMAP has them; none if it would need more than quotes.
fn quoted(text: &str) -> Option<String> {
    let plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    plain.then(|| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

fn trusting(pem: Option<&[u8]>) -> Result<ClientConfig, SettingsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in CertificateDer::pem_slice_iter(pem.unwrap_or_default()) {
        let wrong = |error: &dyn fmt::Display| SettingsError(format!("a certificate: {error}"));
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingsError(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_its_quotes() {
        assert_eq!(quoted("a \"b\" \\c").as_deref(), Some("\"a \\\"b\\\" \\\\c\""));
        assert_eq!(quoted("a\r\nA2 DELETE INBOX"), None);
        assert_eq!(quoted("ä"), None);
    }
}
