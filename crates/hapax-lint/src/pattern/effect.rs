//! Decides which calls have an effect outside of the process: a payment, a message, a write to a
//! remote service.
//!
//! Calls are judged by the words of their names. A read is never an effect, nor is an answer to a
//! request, a route or a task for a thread.

use std::sync::LazyLock;

use regex::Regex;

use super::{fixed, is_quoted};
use crate::words::{listed, words};

/// How surely a line has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// `process(order)`, or an awaited call that is not named like a read.
    Likely,
    /// `requests.post(..)`, `send_email(..)`, `stripe.refunds.create(..)`.
    Sure,
}

static CALL: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"((?:\bawait|\byield\*)\s+)?((?:[A-Za-z_$][\w$]*\??\.)*[A-Za-z_$][\w$]*)(?:<[\w\[\], |]*>)?\(",
    )
});

/// A line that defines a function, a route or a class, or imports one.
static DEFINES: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^\s*(?:@|(?:export\s+)?(?:default\s+)?(?:async\s+)?(?:def|function|class|import|from)\b",
        r"|(?:(?:public|private|protected|static|async)\s+)*[\w$]+\([^()]*\)\s*(?::[^{]*)?\{\s*$)",
    ))
});

/// The method of a request that writes, as an option or an argument.
static WRITES: LazyLock<Regex> = LazyLock::new(|| {
    let verbs = r#"["'`](?:post|put|patch|delete)["'`]"#;
    fixed(&format!(r#"(?i)\bmethod["']?\s*[:=]\s*{verbs}|\brequest\(\s*{verbs}"#))
});

/// Words that say nothing about what a call does.
const MODIFIERS: &str = "do try safe safely async sync really actually basic chat maybe";

/// Verbs that are effects wherever they are called.
const VERBS: &str = "\
    charge refund pay publish deliver transfer debit credit withdraw deposit payout disburse remit \
    ship purchase broadcast sendmail resend";

/// Verbs that are effects if they make one of [`DEALS`].
const MAKES: &str =
    "create place make issue capture confirm trigger initiate execute perform book cancel";
const DEALS: &str = "\
    charge charges payment payments intent intents refund refunds transfer transfers payout \
    payouts invoice invoices subscription subscriptions purchase purchases order orders shipment \
    shipments booking bookings reservation reservations webhook webhooks twilio";

/// Nouns that make a number or a text of the verb before them: `charge_amount(order)`.
const MEASURES: &str = "\
    amount fee fees rate score limit total cost price date period type kind state status id name \
    for count time label weight units address zone size method number";

const REMOTES: &str = "\
    client http api stub gateway rpc requests httpx session axios kinesis dynamodb s3 eventbridge";

/// Verbs of programs that handle what comes in.
const HANDLES: &str = "\
    handle handler process processor execute run perform apply invoke fulfil fulfill consume \
    dispatch trigger callback";

/// Verbs that change nothing, and calls that only wait.
const READS: &str = "\
    get find load read fetch query list lookup parse compute calculate resolve exists exist check \
    select sleep delay wait has is next count open connect acquire lock render build json text \
    all gather race validate verify hash digest info debug warn warning log then import";

/// The surest effect of a line.
pub(super) fn of(line: &str) -> Option<Effect> {
    if DEFINES.is_match(line) {
        return None;
    }
    if WRITES.is_match(line) {
        return Some(Effect::Sure);
    }
    let calls = CALL.captures_iter(line).filter_map(|call| {
        let path = call.get(2)?;
        if is_quoted(line, path.start(), false) {
            return None;
        }
        judge(path.as_str(), call.get(1).is_some())
    });
    calls.max()
}

/// The effect of a call by its path, such as `self.client.post`.
pub(super) fn judge(path: &str, awaited: bool) -> Option<Effect> {
    let mut segments = path.split('.');
    let name = segments.next_back().filter(|name| !name.starts_with(char::is_uppercase))?;
    let on: Vec<String> = segments.flat_map(words).collect();
    let named = words(name);
    let verb = named.iter().position(|word| !listed(MODIFIERS, word)).unwrap_or(0);
    if is_sure(&on, &named[verb..]) {
        return Some(Effect::Sure);
    }
    let first = named.get(verb)?;
    let likely = listed(HANDLES, first) || awaited && !listed(READS, first);
    likely.then_some(Effect::Likely)
}

/// Whether a call on these words, named with those, is an effect.
fn is_sure(on: &[String], named: &[String]) -> bool {
    let word = |at: usize| named.get(at).map_or("", String::as_str);
    let is_on = |list: &str| on.iter().any(|word| listed(list, word));
    if listed(MEASURES, word(1)) {
        return false;
    }
    match word(0) {
        "post" if word(1) == "message" => is_on("slack chat client api bot"),
        "post" => {
            let route = is_on("app router fastify server express blueprint bp");
            !route && !listed("process processing processor order condition fix", word(1))
        }
        "send" => {
            let answer = is_on("res resp response reply ctx gen generator coroutine worker child");
            let part = "response header headers error file from static status json";
            !answer && !listed(part, word(1))
        }
        "notify" => {
            let local = is_on("cond condition cv lock observer listener subject");
            !local && !listed("all one", word(1))
        }
        "submit" => !is_on("executor pool threadpool ex form"),
        "produce" => is_on("producer kafka"),
        "email" | "mail" | "sms" => {
            let bare = word(1).is_empty() && on.is_empty();
            bare || listed("user users customer customers receipt invoice team admin", word(1))
        }
        "put" | "patch" | "delete" => is_on(REMOTES),
        verb if listed(MAKES, verb) => is_on(DEALS) || listed(DEALS, word(1)),
        verb => listed(VERBS, verb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_known_by_the_words_of_their_calls() {
        for sure in [
            "requests.post(url, json=order)",
            "await client.charge(order)",
            "stripe.PaymentIntent.create(amount=5)",
            "const r = await stripe.refunds.create({ charge })",
            "smtp.send_message(mail)",
            "server.sendmail(sender, to, text)",
            "self._send(order)",
            "channel.basic_publish(exchange, key, body)",
            "  method: \"POST\",",
            "requests.request('PUT', url)",
            "sendEmail(user)",
            "place_order(cart)",
            "axios.put(url, order)",
            "if charge_card(order):",
        ] {
            assert_eq!(of(sure), Some(Effect::Sure), "{sure}");
        }
        for likely in ["process(order)", "handle_event(event)", "await shop.reserve(order)"] {
            assert_eq!(of(likely), Some(Effect::Likely), "{likely}");
        }
        for none in [
            "requests.get(url)",
            "await fetch(url)",
            "res.send(page)",
            "def send_email(user):",
            "@app.post('/orders')",
            "async send(order: Order): Promise<void> {",
            "router.post('/orders', create)",
            "post_process(rows)",
            "post_order(tree.left)",
            "executor.submit(read, url)",
            "queue.put(node)",
            "cache.delete(key)",
            "cond.notify_all()",
            "log(\"send(order)\")",
            "charge_amount(order)",
            "Refund(order)",
            "if (req.method === \"POST\") {",
            "worker.postMessage(order)",
            "client.chat.completions.create(model)",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
