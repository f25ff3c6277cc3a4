//! `weir web`: metrics and the public API over HTTP, by a process without rights of its own.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use super::{Context, printer};
use crate::codes;
use crate::fault::Fault;
use crate::unprivileged::{self, NOBODY};
use crate::web::{Settings, Token, serve};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Address and port; port 0 takes a free one, and says which
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    listen: String,
    /// File with the token that whoever asks for more than /metrics must show [default: nothing but /metrics is served]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let whoever has the token change budgets and policies, and switch Weir off and on
    #[arg(long)]
    allow_set: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    if args.allow_set && args.token_file.is_none() {
        let message = "--allow-set without a token would let everybody change budgets";
        return Err(Fault::new(&codes::TOKEN, message, "add --token-file FILE"));
    }
    let token = args.token_file.as_deref().map(Token::read).transpose()?;
    let place = context.place()?;
    let listener = listen(&args.listen)?;
    let address = listener.local_addr().map_err(|error| not_listening(&args.listen, &error))?;
    give_up_root(token.is_some(), args.allow_set)?;
    if !address.ip().is_loopback() {
        printer::talk(format_args!(
            "weir: {address} is reached from elsewhere, and there is no TLS: put a proxy before it"
        ));
    }
    match context.json {
        true => printer::line(&serde_json::json!({"schema": 1, "listening": address})),
        false => printer::data(format_args!("http://{address}/metrics")),
    }
    serve(listener, Settings { place, token, allow_set: args.allow_set })?;
    Ok(0)
}

fn listen(text: &str) -> Result<TcpListener, Fault> {
    let address: SocketAddr = text.parse().map_err(|_| {
        let message = format!("`{}` is no address to listen at", text.escape_debug());
        Fault::new(&codes::WEB_ADDRESS, message, "write it as 127.0.0.1:9464 or [::1]:9464")
    })?;
    TcpListener::bind(address).map_err(|error| not_listening(text, &error))
}

fn not_listening(text: &str, error: &std::io::Error) -> Fault {
    let message = format!("cannot listen at `{text}`: {error}");
    Fault::new(&codes::WEB_ADDRESS, message, "choose another address with --listen; port 0 takes a free one")
}

/// A web server is nothing for root: what it needs it has opened. For more than the summary that everybody may read it must
/// be of the group `weir`; what of that group's rights whoever has the token gets, `--allow-set` says.
fn give_up_root(has_token: bool, allow_set: bool) -> Result<(), Fault> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let group = match crate::authority::weir_group().filter(|_| has_token) {
        Some(group) => group,
        None if allow_set => {
            let message = "--allow-set needs the group `weir`, whose members set budgets, and there is none";
            return Err(Fault::new(&codes::NOT_ALLOWED, message, "make it: groupadd --system weir"));
        }
        None => NOBODY,
    };
    if has_token && group == NOBODY {
        printer::talk("weir: there is no group `weir`, so answers hold only what everybody may see");
    }
    unprivileged::give_up_root(group)
}
