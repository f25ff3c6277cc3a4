//! Whether somebody else has locked a tenant's process, or taken a checkpoint of it (faults F46): `cuda-checkpoint`, or what moves
//! whole processes to other machines. Such a tenant stands still and is shown as `checkpointed`; nothing is done about it.

use std::sync::Arc;
use std::time::Duration;

use super::order::{Checkpoints, Member, State};
use crate::shared::Shared;

/// How often those who stand still are asked for.
const PERIOD: Duration = Duration::from_secs(1);

/// Starts the thread. Nobody waits for its end: a driver may hang in any call. Without it nobody is shown as checkpointed.
pub fn start(shared: Arc<Shared>) {
    let run = move || {
        while !shared.is_stopping() {
            shared.pause(PERIOD);
            look(&shared);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("weir-look".into()).spawn(run) {
        tracing::warn!(%error, "nobody looks for others' checkpoints");
    }
}

fn look(shared: &Arc<Shared>) {
    let Ok(driver) = shared.checkpoints() else { return };
    let asleep = shared.registry().asleep();
    for (tenant, members) in asleep {
        let held = members.iter().any(|member| is_held(driver, member));
        shared.registry().note_checkpoint(tenant, held);
    }
}

/// Whether its calls wait. Of whom the driver knows nothing, nobody has taken a checkpoint.
fn is_held(driver: &dyn Checkpoints, member: &Member) -> bool {
    matches!(driver.state(member.pid), Ok(State::Locked | State::Checkpointed | State::Lost))
}
