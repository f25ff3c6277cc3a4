//! Checkpoints of processes, as the driver has them for whoever may: locked, its calls wait; checkpointed, its memory is off
//! the devices; restored and unlocked, it goes on. What is on the host is the driver's to move: here are the books.

use weir_simgpu_link::rpc::Reply;
use weir_simgpu_link::{ProcessState, Refusal, Step};

use crate::broker::Broker;
use crate::client::Client;

impl Client {
    /// Whether nothing that it has begun is under way.
    fn is_quiet(&self) -> bool {
        let idle = self.outstanding == 0 && self.stalls.is_empty();
        idle && self
            .shared
            .as_ref()
            .is_some_and(|shared| !shared.page.has_calls() && !shared.page.has_commands())
    }

    fn require(&self, state: ProcessState) -> Result<(), Refusal> {
        if self.state == state { Ok(()) } else { Err(Refusal::WrongState(self.state)) }
    }

    fn unlock(&mut self) {
        self.locking = None;
        self.state = ProcessState::Running;
        if let Some(shared) = &self.shared {
            shared.page.unlock_calls();
        }
    }
}

impl Broker {
    /// A step of a checkpoint of process `pid`, as client `from` wants it.
    pub fn process(&mut self, from: usize, pid: i32, step: Step) -> Result<Reply, Refusal> {
        let uses_gpus = |client: &Client| client.pid == pid && client.shared.is_some() && !client.gone;
        let index = self.clients.iter().position(|client| client.as_ref().is_some_and(uses_gpus));
        let index = index.ok_or(Refusal::NoSuchProcess(pid))?;
        if step == Step::Lock {
            self.lock(from, index)?;
        }
        let Some(client) = self.clients[index].as_mut() else { return Err(Refusal::NoSuchProcess(pid)) };
        match step {
            Step::State => return Ok(Reply::Process(client.state)),
            Step::Lock => {}
            Step::Abandon => {
                client.require(ProcessState::Running)?;
                client.unlock();
            }
            Step::Checkpoint => return self.checkpoint(index).map(Reply::Moved),
            Step::Restore => return self.restore(index).map(Reply::Moved),
            Step::Unlock => {
                client.require(ProcessState::Locked)?;
                client.unlock();
            }
        }
        Ok(Reply::Done)
    }

    /// Locks a process if nothing of it is under way any more. Of two that want to lock it the first one does.
    fn lock(&mut self, from: usize, index: usize) -> Result<(), Refusal> {
        let Some(client) = self.clients[index].as_mut() else { return Err(Refusal::NotReady) };
        client.require(ProcessState::Running)?;
        if *client.locking.get_or_insert(from) != from {
            return Err(Refusal::NotReady);
        }
        if let Some(shared) = &client.shared {
            shared.page.lock_calls();
        }
        // Behind the lock: a call that began before it has pushed its commands, or is counted.
        self.ingest();
        self.publish();
        let Some(client) = self.clients[index].as_mut() else { return Err(Refusal::NotReady) };
        if !client.is_quiet() {
            return Err(Refusal::NotReady);
        }
        client.locking = None;
        client.state = ProcessState::Locked;
        Ok(())
    }

    /// Whoever was locking somebody is gone.
    pub fn abandon_locks(&mut self, from: usize) {
        let locking = |client: &&mut Client| client.locking == Some(from);
        self.clients.iter_mut().flatten().filter(locking).for_each(Client::unlock);
    }

    fn checkpoint(&mut self, index: usize) -> Result<u64, Refusal> {
        let Some(client) = self.clients[index].as_mut() else { return Err(Refusal::NotReady) };
        client.require(ProcessState::Locked)?;
        if let Some(obstacle) = client.shared.as_ref().and_then(|shared| shared.page.obstacle()) {
            return Err(Refusal::NoCheckpointOf(obstacle));
        }
        for (gpu, account) in self.gpus.iter_mut().zip(&mut client.memory) {
            account.away = std::mem::take(&mut account.held);
            gpu.used -= account.away;
        }
        client.state = ProcessState::Checkpointed;
        Ok(client.memory.iter().map(|account| account.away).sum())
    }

    /// All of it, or nothing: a process cannot be half there.
    fn restore(&mut self, index: usize) -> Result<u64, Refusal> {
        let Some(client) = self.clients[index].as_mut() else { return Err(Refusal::NotReady) };
        client.require(ProcessState::Checkpointed)?;
        let fits = |(gpu, account): (&crate::machine::Gpu, &crate::client::Account)| {
            account.away <= gpu.about.memory_bytes - gpu.used
        };
        if !self.gpus.iter().zip(&client.memory).all(fits) {
            return Err(Refusal::OutOfMemory);
        }
        let mut moved = 0;
        for (gpu, account) in self.gpus.iter_mut().zip(&mut client.memory) {
            let back = std::mem::take(&mut account.away);
            gpu.take(back);
            account.add(back);
            moved += back;
        }
        client.state = ProcessState::Locked;
        Ok(moved)
    }
}
