//! The asking process: looks up by one route, and prints a line for each symbol: its name, then the file that the
//! address lies in, or `-` and why there is none.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::route::Found;
use crate::routes::{By, ROUTES};
use crate::symbols::{SYMBOLS, Symbol, file_of};

/// Longest that a look-up may take, in seconds: the kernel then ends the process.
const PATIENCE: u32 = 20;

/// Looks up by the route of this name.
pub fn answer(name: &str, driver: Option<&Path>, out: &mut impl Write) -> ExitCode {
    // SAFETY: no handler is set; SIGALRM's default ends the process.
    unsafe { libc::alarm(PATIENCE) };
    let Some(route) = ROUTES.iter().find(|route| route.name == name) else { return ExitCode::FAILURE };
    for symbol in &SYMBOLS {
        let found = match route.by {
            By::Call(look_up) => look_up(symbol),
            By::CallWithFile(look_up) | By::CallWithDriver(look_up) => {
                driver.ok_or_else(|| "no driver named".into()).and_then(|driver| look_up(symbol, driver))
            }
            By::Loader => Err("asked by the linked program".into()),
        };
        if print(symbol, found, out).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn print(symbol: &Symbol, found: Found, out: &mut impl Write) -> std::io::Result<()> {
    let name = symbol.exported.to_string_lossy();
    let file = found.and_then(|address| file_of(address).ok_or_else(|| "lies in no file".into()));
    match file {
        Ok(file) => writeln!(out, "{name} {}", file.display()),
        Err(why) => writeln!(out, "{name} - {why}"),
    }
}
