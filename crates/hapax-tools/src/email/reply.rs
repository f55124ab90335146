//! The meaning of an SMTP server's reply, or of no reply, for a message.
//!
//! A server that refuses has not taken the message, in any phase. A server that is silent after
//! the final dot may have taken it. Before the dot a message is not complete, and RFC 5321 has the
//! server forget it.
//!
//! | reply | taken for |
//! |---|---|
//! | 4xx | not sent, and may be later |
//! | 530, 534, 535, 538; x.7.x; any 5xx to a login | not sent: a person has to allow it |
//! | other 5xx; no TLS, or none that can be trusted | not sent: a precondition is not met |
//! | none before the final dot | not sent, and may be later |
//! | none after it, or one that cannot be read | it may have been sent |

use hapax_items::Class;

/// How far a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Connecting, and greeting the server.
    Hello,
    /// Logging in.
    Login,
    /// Naming the sender and the recipients.
    Envelope,
    /// Sending the content.
    Content,
    /// The final dot is on its way.
    Ended,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyError<'a> {
    /// The server refused.
    Refused {
        /// The reply code.
        code: u16,
        /// The text of the reply.
        text: &'a str,
    },
    /// The server cannot do what is needed, or cannot be trusted.
    Unfit,
    /// The server sends nothing any more, or nothing that can be read.
    Silent,
}

/// The class of a failure in this phase.
pub(super) fn class(phase: Phase, error: ReplyError<'_>) -> Class {
    match (phase, error) {
        (_, ReplyError::Refused { code: 400..=499, .. }) => Class::Transient,
        (Phase::Login, ReplyError::Refused { .. } | ReplyError::Unfit) => Class::Permission,
        (_, ReplyError::Refused { code: 530 | 534 | 535 | 538, .. }) => Class::Permission,
        (_, ReplyError::Refused { code: 500..=599, text }) if is_policy(text) => Class::Permission,
        (_, ReplyError::Refused { code: 500..=599, .. }) => Class::Precondition,
        (Phase::Ended, _) => Class::Indeterminate,
        (_, ReplyError::Unfit) => Class::Precondition,
        (_, ReplyError::Refused { .. } | ReplyError::Silent) => Class::Transient,
    }
}

/// Whether a refusal is a matter of policy: by its enhanced status code (RFC 3463), or by the words
/// with which servers without such codes refuse to relay.
fn is_policy(text: &str) -> bool {
    let mut first = text.split_whitespace().next().unwrap_or_default().split('.');
    let enhanced = (first.next(), first.next(), first.next().is_some());
    enhanced == (Some("5"), Some("7"), true) || text.to_ascii_lowercase().contains("relay")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves I-10: a message that may have been sent is never called a failure.
    #[test]
    fn each_reply_has_one_class() {
        let no = |code, text| ReplyError::Refused { code, text };
        for (phase, error, expected) in [
            (Phase::Hello, ReplyError::Silent, Class::Transient),
            (Phase::Hello, ReplyError::Unfit, Class::Precondition),
            (Phase::Hello, no(421, "4.3.2 shutting down"), Class::Transient),
            (Phase::Hello, no(554, "no SMTP service here"), Class::Precondition),
            (Phase::Login, no(535, "5.7.8 bad credentials"), Class::Permission),
            (Phase::Login, no(454, "4.7.0 try later"), Class::Transient),
            (Phase::Login, no(504, "unknown mechanism"), Class::Permission),
            (Phase::Login, ReplyError::Unfit, Class::Permission),
            (Phase::Login, ReplyError::Silent, Class::Transient),
            (Phase::Envelope, no(530, "5.7.0 log in first"), Class::Permission),
            (Phase::Envelope, no(550, "5.1.1 no such user"), Class::Precondition),
            (Phase::Envelope, no(550, "no such user"), Class::Precondition),
            (Phase::Envelope, no(550, "5.7.1 relaying denied"), Class::Permission),
            (Phase::Envelope, no(550, "Relay access denied"), Class::Permission),
            (Phase::Envelope, no(552, "5.3.4 too big"), Class::Precondition),
            (Phase::Envelope, no(452, "4.2.2 mailbox full"), Class::Transient),
            (Phase::Envelope, no(250, "at the wrong time"), Class::Transient),
            (Phase::Content, ReplyError::Silent, Class::Transient),
            (Phase::Ended, ReplyError::Silent, Class::Indeterminate),
            (Phase::Ended, ReplyError::Unfit, Class::Indeterminate),
            (Phase::Ended, no(354, "at the wrong time"), Class::Indeterminate),
            (Phase::Ended, no(451, "4.3.0 local error"), Class::Transient),
            (Phase::Ended, no(554, "5.6.0 bad content"), Class::Precondition),
            (Phase::Ended, no(554, "5.7.1 spam"), Class::Permission),
        ] {
            assert_eq!(class(phase, error), expected, "{phase:?} {error:?}");
        }
    }
}
