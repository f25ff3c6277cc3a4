//! `weir park` and `weir unpark`.

use weir_protocol::units::Bytes;

use super::{Context, printer};
use crate::control::Client;
use crate::control::park::ParkDone;
use crate::fault::Fault;
use crate::registry::Stand;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The tenant
    tenant: String,
}

pub(super) fn run(context: &Context, args: &Args, parks: bool) -> Result<u8, Fault> {
    let mut client = Client::connect(&context.place()?)?;
    let done = if parks { client.park(&args.tenant)? } else { client.unpark(&args.tenant)? };
    if context.json {
        printer::json(&done);
    } else {
        printer::data(text(&done));
    }
    Ok(0)
}

fn text(done: &ParkDone) -> String {
    let ParkDone { tenant, stand, memory_bytes, took_ms } = done;
    match (stand, took_ms) {
        (_, 0) => format!("{tenant}: {}, as before", stand.as_str()),
        (Stand::Parked, ms) => format!(
            "{tenant}: parked; {} went to the host in {ms} ms, its first call brings them back",
            Bytes(*memory_bytes)
        ),
        (_, ms) => format!("{tenant}: {} again after {ms} ms", stand.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_what_went_where_and_how_long_that_took() {
        let done =
            |stand, took_ms| text(&ParkDone { tenant: "a".into(), stand, memory_bytes: 3 << 30, took_ms });
        assert_eq!(
            done(Stand::Parked, 12),
            "a: parked; 3 GiB went to the host in 12 ms, its first call brings them back"
        );
        assert_eq!(done(Stand::Running, 9), "a: running again after 9 ms");
        assert_eq!(done(Stand::Parked, 0), "a: parked, as before");
    }
}
