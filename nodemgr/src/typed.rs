//! Shares, sizes and the like as people type them, on the command line and in the configuration.

use weir_protocol::units::{Bandwidth, Bytes, SmShare};

use crate::codes;
use crate::fault::Fault;

/// A share in thousandths; `what` names the setting.
///
/// # Errors
/// [`codes::SHARE`].
pub fn share(what: &str, text: Option<&str>) -> Result<Option<u16>, Fault> {
    let parse = |text: &str| {
        let share = text.parse::<SmShare>().map(SmShare::as_permille);
        share.map_err(|error| too_fine(what, text).unwrap_or_else(|| Fault::unit(what, &error)))
    };
    text.map(parse).transpose()
}

/// What to say of a share that lies between two steps.
fn too_fine(what: &str, text: &str) -> Option<Fault> {
    let (whole, fraction) = text.trim().strip_suffix('%')?.trim_end().split_once('.')?;
    let (tenth, _) = fraction.split_at_checked(1)?;
    let plain = [whole, fraction].iter().all(|part| part.bytes().all(|digit| digit.is_ascii_digit()));
    let below = format!("{whole}{tenth}").parse::<u16>().ok().filter(|below| plain && *below < 1000)?;
    let typed = |permille| format!("`{}%`", SmShare::permille(permille).as_percent());
    let message = format!("{what}: `{text}` lies between two steps: a share has steps of 0.1 %");
    let help = format!("write {} or {}", typed(below), typed(below + 1));
    Some(Fault::new(&codes::SHARE, message, help))
}

/// A size in bytes.
///
/// # Errors
/// [`codes::SIZE`].
pub fn size(what: &str, text: Option<&str>) -> Result<Option<u64>, Fault> {
    let parse = |text: &str| text.parse::<Bytes>().map_err(|error| Fault::unit(what, &error));
    Ok(text.map(parse).transpose()?.map(|bytes| bytes.0))
}

/// A bandwidth in bytes per second.
///
/// # Errors
/// [`codes::BANDWIDTH`].
pub fn bandwidth(what: &str, text: Option<&str>) -> Result<Option<u64>, Fault> {
    let parse = |text: &str| text.parse::<Bandwidth>().map_err(|error| Fault::unit(what, &error));
    Ok(text.map(parse).transpose()?.map(|bandwidth| bandwidth.0))
}
