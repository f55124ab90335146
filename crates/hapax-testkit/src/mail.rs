//! Mail: an SMTP server that delivers into a mailbox, and an IMAP server that shows it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::group::Group;
use crate::{free_port, hand_over, server, until};

const DOVECOT: &str = "/usr/sbin/dovecot";
const PYTHON: &str = "/usr/bin/python3";

/// Which servers are installed: Dovecot, aiosmtpd.
pub fn mail_servers() -> [bool; 2] {
    let aiosmtpd = Command::new(PYTHON)
        .args(["-c", "import aiosmtpd"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    [Path::new(DOVECOT).exists(), aiosmtpd]
}

/// An SMTP and an IMAP server that live as long as this value.
///
/// The user is `ada` with the password `secret`, and there is one mailbox. The recipients
/// `nobody@…` and `later@…` are refused, for ever and for now, and the domain `elsewhere.example`
/// is not relayed to.
pub struct Mail {
    directory: TempDir,
    smtp: u16,
    imap: u16,
    secured: bool,
    smtp_server: Option<Group>,
    imap_server: Option<Group>,
}

impl Mail {
    /// Servers without TLS; the SMTP server wants no password.
    pub fn open() -> Self {
        Self::start(false)
    }

    /// Servers that want STARTTLS first, and an SMTP server that wants a password as well.
    pub fn secured() -> Self {
        Self::start(true)
    }

    fn start(secured: bool) -> Self {
        for (is_there, program) in mail_servers().into_iter().zip([DOVECOT, "aiosmtpd"]) {
            assert!(is_there, "{program}; `cargo xtask test` installs it");
        }
        let directory = tempfile::tempdir().expect("a directory");
        hand_over(directory.path());
        let (smtp, imap) = (free_port(), free_port());
        let mut mail =
            Self { directory, smtp, imap, secured, smtp_server: None, imap_server: None };
        certify(&mail.at("cert.pem"), &mail.at("key.pem"));
        fs::write(mail.at("smtp.py"), SMTP).expect("a file");
        fs::write(mail.at("dovecot.conf"), mail.dovecot()).expect("a file");
        mail.start_smtp();
        mail.start_imap();
        mail
    }

    /// The port of the SMTP server.
    pub fn smtp(&self) -> u16 {
        self.smtp
    }

    /// The port of the IMAP server.
    pub fn imap(&self) -> u16 {
        self.imap
    }

    /// The certificate to trust, as PEM.
    pub fn certificate(&self) -> Vec<u8> {
        fs::read(self.at("cert.pem")).expect("a certificate")
    }

    /// The messages that were delivered, in the order of their arrival.
    pub fn delivered(&self) -> Vec<String> {
        let mut found = Vec::new();
        for folder in ["new", "cur"] {
            let Ok(files) = fs::read_dir(self.at("Maildir").join(folder)) else { continue };
            found.extend(files.map(|file| file.expect("a file").path()));
        }
        found.sort_by_key(|path| path.file_name().map(std::ffi::OsStr::to_owned));
        let text =
            |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).expect("a file")).into();
        found.iter().map(text).collect()
    }

    /// Stops the SMTP server without warning.
    pub fn kill_smtp(&mut self) {
        self.smtp_server = None;
    }

    /// Stops the IMAP server without warning.
    pub fn kill_imap(&mut self) {
        self.imap_server = None;
    }

    /// Starts the IMAP server, where it was killed.
    pub fn start_imap(&mut self) {
        let mut command = server(Path::new(DOVECOT));
        command.arg("-F").arg("-c").arg(self.at("dovecot.conf"));
        self.imap_server = Some(Group::spawn(&mut command, self.log()));
        until("Dovecot answers", || TcpStream::connect(("127.0.0.1", self.imap)).is_ok());
    }

    fn start_smtp(&mut self) {
        let mut command = server(Path::new(PYTHON));
        command.arg(self.at("smtp.py")).arg(self.smtp.to_string()).arg(self.at("Maildir"));
        if self.secured {
            command.arg(self.at("cert.pem")).arg(self.at("key.pem"));
        }
        self.smtp_server = Some(Group::spawn(&mut command, self.log()));
        until("the SMTP server answers", || TcpStream::connect(("127.0.0.1", self.smtp)).is_ok());
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self) -> Stdio {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.at("log"));
        log.expect("a log").into()
    }

    /// One user for everything, and no change of root: Dovecot runs without being root.
    fn dovecot(&self) -> String {
        let directory = self.directory.path().display();
        let whoami = |flag: &str| {
            let mut id = Command::new("id");
            if rustix::process::geteuid().is_root() {
                id.args([flag, "nobody"]);
            } else {
                id.arg(flag);
            }
            let output = id.output().expect("id").stdout;
            String::from_utf8_lossy(&output).trim().to_owned()
        };
        let (user, group) = (whoami("-un"), whoami("-gn"));
        let (uid, gid, port) = (whoami("-u"), whoami("-g"), self.imap);
        let ssl = if self.secured { "required" } else { "no" };
        format!(
            "base_dir = {directory}/run
state_dir = {directory}/state
log_path = {directory}/dovecot.log
protocols = imap
listen = 127.0.0.1
ssl = {ssl}
ssl_cert = <{directory}/cert.pem
ssl_key = <{directory}/key.pem
disable_plaintext_auth = no
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
first_valid_uid = 1
mail_location = maildir:{directory}/Maildir
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={directory}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"
        )
    }
}

/// A self-signed certificate for this machine.
fn certify(certificate: &Path, key: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split(' '));
    openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-out").arg(certificate).arg("-keyout").arg(key);
    let made = openssl.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    assert!(made, "openssl makes no certificate");
    hand_over(certificate);
    hand_over(key);
}

const SMTP: &str = r#"
import ssl, sys, threading
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Mailbox
from aiosmtpd.smtp import AuthResult

class Handler(Mailbox):
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return "550 5.1.1 There is no such mailbox"
        if address.startswith("later@"):
            return "451 4.7.1 Greylisted, come back later"
        if address.endswith("@elsewhere.example"):
            return "554 5.7.1 Relay access denied"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        if b"\r\nSubject: spam\r\n" in envelope.original_content:
            return "554 5.6.0 Not with this content"
        return await super().handle_DATA(server, session, envelope)

def known(server, session, envelope, mechanism, data):
    right = (data.login, data.password) == (b"ada", b"secret")
    return AuthResult(success=right, handled=False)

port, maildir, *secured = sys.argv[1:]
options = {"data_size_limit": 64 * 1024 * 1024}
if secured:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*secured)
    options.update(tls_context=context, require_starttls=True, auth_required=True,
                   authenticator=known)
Controller(Handler(maildir), hostname="127.0.0.1", port=int(port), **options).start()
threading.Event().wait()
"#;
