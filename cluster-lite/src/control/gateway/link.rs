//! Between controller and gateway: JSON lines on a Unix socket. A table goes there, counts come back.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::route::{Table, Traffic};

/// Longest wait for an answer: the gateway has nothing else to do with the line.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the controller says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tell {
    /// Route by this; the answer is the traffic.
    Route(Table),
    /// Finish what there is and end.
    End,
}

/// The controller's side.
pub struct Link {
    stream: BufReader<UnixStream>,
}

impl Link {
    /// Connects to the gateway of this socket.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Says one thing and hears the answer.
    ///
    /// # Errors
    /// The gateway is gone.
    pub fn tell(&mut self, tell: &Tell) -> std::io::Result<Traffic> {
        let mut line = serde_json::to_vec(tell)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut answer = String::new();
        if self.stream.read_line(&mut answer)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    }
}
