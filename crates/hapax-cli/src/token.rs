//! `hapax token`: tokens, which let clients in where the ledger is served.

use hapax::{Hapax, Role, Secret, Token as StoredToken};
use hapax_server::wire::time;
use serde_json::{Value, json};

use crate::args::{self, Global, Token};
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::output;

pub(crate) async fn main(global: &Global, token: Token) -> Result<Exit, Failed> {
    let hapax = output::open(global).await?;
    match token {
        Token::Create { role, every_namespace, holder, lifetime } => {
            let namespace = (!every_namespace).then(|| hapax.namespace().clone());
            let role = match role {
                args::Role::Viewer => Role::Viewer,
                args::Role::Operator => Role::Operator,
                args::Role::Steward => Role::Steward,
            };
            let (kept, secret) = hapax.tokens().create(role, namespace, &holder, lifetime).await?;
            if global.json {
                let mut document = document(&kept);
                document["secret"] = secret.reveal().into();
                output::json(&document);
            } else {
                output::print(&secret.reveal());
                eprintln!(
                    "hapax: {} may be shown as {} in {}; this is the only time it is printed",
                    kept.id,
                    kept.role,
                    place(&kept)
                );
            }
            Ok(Exit::Done)
        }
        Token::List => list(global, &hapax).await,
        Token::Revoke { token } => {
            // The holder of a token may name it by the token itself.
            let shown = token.parse::<Secret>().map(|secret| secret.id());
            let id = shown.or_else(|_| token.parse()).map_err(|_| {
                Failed::usage("this is not the id of a token")
                    .next(format!("List them: {}", command(["token", "list"])))
            })?;
            if !hapax.tokens().revoke(id).await? {
                return Err(Failed::usage(format!("there is no {id}"))
                    .next(format!("List them: {}", command(["token", "list"]))));
            }
            if global.json {
                output::json(&json!({ "token": id.to_string(), "revoked": true }));
            } else {
                output::print(&format!("{id} is revoked; servers know within a second."));
            }
            Ok(Exit::Done)
        }
    }
}

async fn list(global: &Global, hapax: &Hapax) -> Result<Exit, Failed> {
    let tokens = hapax.tokens().list().await?;
    if global.json {
        tokens.iter().for_each(|token| output::json(&document(token)));
        return Ok(Exit::Done);
    }
    if tokens.is_empty() {
        output::print("No tokens. Make one: hapax token create --role operator");
        return Ok(Exit::Done);
    }
    let row = |token: &StoredToken| {
        vec![
            token.id.to_string(),
            token.role.to_string(),
            place(token),
            token.holder.clone(),
            time(token.created),
            token.expires.map(time).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    output::table(&["TOKEN", "ROLE", "NAMESPACE", "HOLDER", "CREATED", "EXPIRES"], &rows);
    Ok(Exit::Done)
}

fn place(token: &StoredToken) -> String {
    token.namespace.as_ref().map_or_else(|| "every namespace".into(), ToString::to_string)
}

fn document(token: &StoredToken) -> Value {
    json!({
        "token": token.id.to_string(),
        "role": token.role.as_str(),
        "namespace": token.namespace.as_ref().map(|namespace| namespace.as_str()),
        "holder": token.holder,
        "created": time(token.created),
        "expires": token.expires.map(time),
    })
}
