//! Multicast objects: the broker has them, since processes share them.

use super::{Session, SessionError};
use crate::rpc::{Reply, Request, TeamRequest};

impl Session {
    /// Makes a multicast object of this size for so many devices: its number.
    ///
    /// # Errors
    /// The connection's.
    pub fn create_team(&self, devices: u32, bytes: u64) -> Result<u32, SessionError> {
        match self.ask(&Request::Team(TeamRequest::Create { devices, bytes }))?.0 {
            Reply::Team(team) => Ok(team),
            _ => Err(SessionError::Confused),
        }
    }

    /// Does something with a multicast object that has nothing to tell.
    ///
    /// # Errors
    /// [`Refusal::NotOfTeam`](crate::Refusal::NotOfTeam), [`Refusal::NotReady`](crate::Refusal::NotReady) before all devices
    /// have joined, [`Refusal::OutOfMemory`](crate::Refusal::OutOfMemory) where one joins.
    pub fn team(&self, request: TeamRequest) -> Result<(), SessionError> {
        self.done(&Request::Team(request))
    }
}
