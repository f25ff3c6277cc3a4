//! A process of a tenant without CUDA: it registers as `libweir.so` does and then does what its standard input says,
//! one word per line. Tests drive it to live, launch and die at a chosen moment.
//!
//! ```text
//!   hold N      holds N bytes            launch   counts a launch under the present grant, and acknowledges it
//!   close       closes its socket        exec     replaces itself by `sleep`, which knows nothing of Weir
//!   wait CAUSE MS  has waited for so long, as in the statistics
//!   force       lets a launch through the gate that would have held it
//!   back        comes back with its slot to whoever is the manager now
//!   forget      closes its pages' descriptors; they stay mapped
//!   tell MS N   tells N requests that took so long
//!   board       waits for a notice and says what is in it
//!   turn        takes the tenant's turn  stand    says how the tenant stands to the turn
//!   begin       begins work once the bell is armed, and rings
//!   ring        rings without work       gate G   waits until its gate is G (Open, Closed, Lent)
//!   flood       rings until nobody takes it any more, 100,000 times at most
//!   nonsense    sends what no process sends, and waits for the manager to hang up
//! ```

use std::io::BufRead;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;

use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::mapping::{Access, Mapped};
use weir_protocol::message::{Hello, Notice, RING, Reply};
use weir_protocol::pages::{ActivityPage, BucketPage, GrantPage, ProcessState, Stall, UsagePage};
use weir_protocol::transport;
use weir_protocol::units::{Bytes, Nanos};

struct Peer {
    socket: Option<UnixStream>,
    fds: Vec<OwnedFd>,
    grant: Mapped<GrantPage>,
    _bucket: Mapped<BucketPage>, // as in a real process, where all four are mapped
    usage: Mapped<UsagePage>,
    activity: Mapped<ActivityPage>,
    slot: usize,
}

fn main() -> ExitCode {
    match register() {
        Ok(peer) => serve(peer),
        Err(reason) => {
            say(&reason);
            ExitCode::FAILURE
        }
    }
}

fn hello(slot: Option<u32>) -> Result<(UnixStream, Reply, Vec<OwnedFd>), String> {
    let dir = std::env::var_os("WEIR_DIR").ok_or("WEIR_DIR is not set")?;
    let path = std::path::Path::new(&dir).join("tenant.sock");
    let socket = UnixStream::connect(&path).map_err(|error| error.to_string())?;
    let hello = Hello { protocol: PROTOCOL_VERSION, build: "peer".into(), driver: "none".into(), slot };
    transport::send(&socket, &hello, &[]).map_err(|error| error.to_string())?;
    let (reply, fds) = transport::receive::<Reply>(&socket).map_err(|error| error.to_string())?;
    Ok((socket, reply, fds))
}

fn register() -> Result<Peer, String> {
    let (socket, reply, fds) = hello(None)?;
    let welcome = match reply {
        Reply::Welcome(welcome) => welcome,
        Reply::Refused { reason } => return Err(format!("refused: {reason}")),
        Reply::Rejoined => return Err("it was not there before".into()),
    };
    let [grant, bucket, usage, activity, ..] = fds.as_slice() else {
        return Err("a GPU has four pages".into());
    };
    let peer = Peer {
        socket: Some(socket),
        grant: Mapped::open(grant, Access::ReadOnly).map_err(|error| error.to_string())?,
        _bucket: Mapped::open(bucket, Access::ReadWrite).map_err(|error| error.to_string())?,
        usage: Mapped::open(usage, Access::ReadWrite).map_err(|error| error.to_string())?,
        activity: Mapped::open(activity, Access::ReadWrite).map_err(|error| error.to_string())?,
        slot: welcome.slot as usize,
        fds,
    };
    peer.usage.slots[peer.slot].state.store(ProcessState::Enforced as u32, Ordering::Relaxed);
    Ok(peer)
}

fn serve(mut peer: Peer) -> ExitCode {
    say(&format!("ready {}", peer.slot));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["hold", bytes] => {
                let want = Bytes(bytes.parse().unwrap_or(0));
                let held = peer.usage.reserve(peer.slot, want, peer.grant.read().memory_limit);
                say(if held { "held" } else { "out of memory" });
            }
            ["launch"] => peer.launch(),
            ["wait", cause, ms] => peer.wait(cause, ms.parse().unwrap_or(0)),
            ["force"] => peer.force(),
            ["tell", ms, times] => {
                let latency = Nanos::from_millis(ms.parse().unwrap_or(0));
                (0..times.parse().unwrap_or(0u32)).for_each(|_| peer.usage.told.add(latency));
                say("told");
            }
            ["close"] => {
                peer.socket = None;
                say("closed");
            }
            ["back"] => peer.come_back(),
            ["forget"] => {
                peer.fds.clear();
                say("forgotten");
            }
            ["exec"] => {
                let error = Command::new("sleep").arg("600").exec();
                say(&error.to_string());
            }
            ["turn"] => {
                let turn = &peer.activity.turn;
                turn.want(std::iter::empty());
                turn.hold(Nanos::from_millis(5));
                say(&format!("{:?}", turn.look().0));
            }
            ["begin"] => peer.begin(),
            ["ring"] => peer.ring(),
            ["flood"] => peer.flood(),
            ["nonsense"] => peer.talk_nonsense(),
            ["gate", gate] => peer.await_gate(gate),
            ["board"] => peer.tell_board(),
            ["stand"] => say(&format!("{:?}", peer.activity.turn.look().0)),
            _ => return ExitCode::SUCCESS,
        }
    }
    ExitCode::SUCCESS
}

impl Peer {
    fn wait(&self, cause: &str, ms: u64) {
        let slot = &self.usage.slots[self.slot];
        if let Some(at) = Stall::ALL.iter().position(|stall| stall.name() == cause) {
            slot.stalls.parts_ns[at].fetch_add(ms * 1_000_000, Ordering::Relaxed);
        }
        self.stir();
        say("waited");
    }

    fn force(&self) {
        self.usage.slots[self.slot].lanes[0].forced.fetch_add(1, Ordering::Relaxed);
        self.stir();
        say("forced");
    }

    /// Shows that the process is awake: some work was handed over and is done.
    fn stir(&self) {
        let slot = &self.usage.slots[self.slot];
        slot.submitted_ns.fetch_add(1, Ordering::Relaxed);
        slot.completed_ns.fetch_add(1, Ordering::Relaxed);
    }

    fn begin(&self) {
        while !self.grant.bell.wants().ring {
            std::thread::yield_now();
        }
        self.activity.begin(self.slot, Nanos::default);
        self.ring();
    }

    fn ring(&self) {
        use std::io::Write;
        let rung = self.socket.as_ref().is_some_and(|mut socket| socket.write_all(&[RING]).is_ok());
        say(if rung { "rang" } else { "no connection" });
    }

    fn flood(&self) {
        use std::io::Write;
        let Some(mut socket) = self.socket.as_ref() else { return say("no connection") };
        let ring = |_| socket.set_nonblocking(true).and_then(|()| socket.write_all(&[RING])).is_ok();
        say(if (0..100_000).all(ring) { "all were taken" } else { "full" });
    }

    fn talk_nonsense(&mut self) {
        use std::io::{Read, Write};
        let Some(mut socket) = self.socket.take() else { return say("no connection") };
        let sent = socket.write_all(b"nonsense");
        let ended = sent.and_then(|()| socket.read_to_end(&mut Vec::new()));
        say(if ended.is_ok() { "hung up" } else { "broken" });
    }

    fn await_gate(&self, wanted: &str) {
        loop {
            let grant = self.grant.read();
            if format!("{:?}", grant.gate) == wanted {
                return say(wanted);
            }
            let flags = rustix::thread::futex::Flags::empty();
            let _ = rustix::thread::futex::wait(self.grant.futex_word(), flags, grant.generation, None);
        }
    }

    fn tell_board(&self) {
        let Some(socket) = &self.socket else { return say("no connection") };
        match transport::receive::<Notice>(socket) {
            Ok((notice, pages)) if notice.board == self.grant.board() => {
                say(&format!("{} neighbours, as the page says", pages.len()));
            }
            Ok((notice, _)) => say(&format!("board {}, the page says {}", notice.board, self.grant.board())),
            Err(error) => say(&error.to_string()),
        }
    }

    fn come_back(&mut self) {
        match hello(u32::try_from(self.slot).ok()) {
            Ok((socket, Reply::Rejoined, _)) => {
                self.socket = Some(socket);
                say("rejoined");
            }
            Ok((_, reply, _)) => say(&format!("{reply:?}")),
            Err(reason) => say(&reason),
        }
    }

    fn launch(&self) {
        let slot = &self.usage.slots[self.slot];
        slot.lanes[0].calls[0].fetch_add(1, Ordering::Relaxed);
        slot.lanes[0].charged_ns.fetch_add(1_000, Ordering::Relaxed);
        slot.acked_generation.store(self.grant.generation(), Ordering::Release);
        let _ = rustix::thread::futex::wake(&slot.acked_generation, rustix::thread::futex::Flags::empty(), 1);
        say("launched");
    }
}

fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
    let _ = std::io::stdout().flush();
}
