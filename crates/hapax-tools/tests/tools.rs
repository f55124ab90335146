//! The built-in tools against real servers.

#[path = "tools/email.rs"]
mod email;
#[path = "tools/endpoint.rs"]
mod endpoint;
#[path = "tools/file.rs"]
mod file;
#[path = "tools/http.rs"]
mod http;
#[path = "tools/payloads.rs"]
mod payloads;
#[path = "tools/site.rs"]
mod site;
#[path = "tools/stage.rs"]
mod stage;
#[path = "tools/webhook.rs"]
mod webhook;
