//! The server that sends, and the sender.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::SettingsError;

/// The server that sends e-mail, and the sender.
#[derive(Debug, Clone)]
pub struct EmailSettings {
    /// The name that scripts call it by.
    pub name: String,
    /// The SMTP server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is secured.
    pub tls: Tls,
    /// Certificates to trust beside those of the machine, as PEM.
    pub trust: Option<Vec<u8>>,
    /// The account on it.
    pub login: Option<Login>,
    /// The sender, such as `Ada <ada@example.org>`.
    pub from: String,
    /// The domain that the ids of messages end in.
    pub message_id_domain: String,
    /// How long it may take to send a message.
    pub timeout: Duration,
    /// How large a message may be, in bytes.
    pub max_bytes: usize,
    /// How many recipients a message may have.
    pub max_recipients: usize,
    /// The mailbox in which messages that were sent can be found again.
    #[cfg(feature = "imap")]
    pub mailbox: Option<super::MailboxSettings>,
}

impl EmailSettings {
    /// A server with STARTTLS on the port for submissions.
    pub fn new(host: impl Into<String>, from: impl Into<String>) -> Self {
        let from = from.into();
        let domain = from.rsplit('@').next().unwrap_or_default().trim_end_matches('>').to_owned();
        Self {
            name: "email".into(),
            host: host.into(),
            port: 587,
            tls: Tls::StartTls,
            trust: None,
            login: None,
            from,
            message_id_domain: domain,
            timeout: Duration::from_secs(60),
            max_bytes: 1024 * 1024,
            max_recipients: 50,
            #[cfg(feature = "imap")]
            mailbox: None,
        }
    }
}

/// How a connection is secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// Not at all. Only for servers on this machine.
    None,
    /// After a STARTTLS command in the clear. Without TLS nothing is sent.
    StartTls,
    /// From the start.
    Wrapper,
}

impl Tls {
    /// Refuses a connection in the clear over a network.
    pub(super) fn checked(self, host: &str) -> Result<Self, SettingsError> {
        let local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        match self {
            Self::None if !local => {
                Err(SettingsError(format!("{host} is not this machine, so it needs TLS")))
            }
            tls => Ok(tls),
        }
    }
}

/// An account on a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
