//! Who is at the other end of a socket, and what he may do. Identity comes from the kernel, never from what a
//! message says.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags};

use crate::birth;
use crate::codes;
use crate::control::schema::Budget;
use crate::fault::Fault;
use crate::place::own_uid;
use crate::registry::Tenant;

/// The group whose members set budgets.
const GROUP: &str = "weir";

/// Most supplementary groups that a user can have (the kernel's limit).
const MAX_GROUPS: usize = 65_536;

/// `SO_PEERPIDFD`, since Linux 6.5; the `libc` crate does not name it on every target.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process at the other end, as it was when it connected.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its process id in our namespace.
    pub pid: i32,
    /// Its birth, which tells it from others of this id.
    pub birth: u64,
    /// Its effective user.
    pub uid: u32,
    /// Whether it may set budgets.
    pub admin: bool,
}

/// The rules that hold on this node.
#[derive(Clone, Copy, Debug)]
pub struct Authority {
    own_uid: u32,
    group: Option<u32>,
}

impl Authority {
    /// The rules for a manager that runs as the present user.
    pub fn here() -> Self {
        Self { own_uid: own_uid(), group: weir_group() }
    }

    /// Who is at the other end of `socket`.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn peer(&self, socket: impl AsFd) -> std::io::Result<Peer> {
        self.peer_and_life(socket).map(|(peer, _)| peer)
    }

    /// The same, and a descriptor of the process.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn peer_and_life(&self, socket: impl AsFd) -> std::io::Result<(Peer, OwnedFd)> {
        let who = rustix::net::sockopt::socket_peercred(&socket)?;
        let (pid, uid) = (who.pid.as_raw_nonzero().get(), who.uid.as_raw());
        // Without root the manager's own user is whom it can serve at all.
        let own = uid == 0 || uid == self.own_uid;
        let member = |gid| who.gid.as_raw() == gid || peer_groups(&socket).contains(&gid);
        let pidfd = pidfd_of(&socket, pid)?;
        let birth = birth::of(&pidfd, pid).ok_or(std::io::ErrorKind::NotFound)?;
        Ok((Peer { pid, birth, uid, admin: own || self.group.is_some_and(member) }, pidfd))
    }

    /// Whether `peer` may make tenants.
    ///
    /// # Errors
    /// [`codes::NOT_ALLOWED`].
    pub fn may_create(&self, peer: &Peer) -> Result<(), Fault> {
        if peer.admin { Ok(()) } else { Err(not_allowed(peer, "make tenants")) }
    }

    /// Whether `peer` may do something that touches everybody on the node.
    ///
    /// # Errors
    /// [`codes::NOT_ALLOWED`].
    pub fn may_rule(&self, peer: &Peer, what: &str) -> Result<(), Fault> {
        if peer.admin { Ok(()) } else { Err(not_allowed(peer, what)) }
    }

    /// Whether `peer` may see what `tenant`'s processes do.
    ///
    /// # Errors
    /// [`codes::NOT_ALLOWED`].
    pub fn may_look_into(&self, peer: &Peer, tenant: &Tenant) -> Result<(), Fault> {
        let may = peer.admin || peer.uid == tenant.owner;
        if may { Ok(()) } else { Err(not_allowed(peer, &format!("look into `{}`", tenant.name))) }
    }

    /// Whether `peer` may change `tenant`'s budget to `new`.
    ///
    /// # Errors
    /// [`codes::NOT_ALLOWED`].
    pub fn may_set(&self, peer: &Peer, tenant: &Tenant, new: &Budget) -> Result<(), Fault> {
        let old = &tenant.budget;
        let shares = new.request <= old.request && new.limit <= old.limit;
        let shares = shares && new.slo == old.slo;
        let lowers = shares && new.memory <= old.memory && new.copy_limit.is_within(old.copy_limit);
        match (peer.admin, peer.uid == tenant.owner) {
            (true, _) => Ok(()),
            (_, true) if lowers => Ok(()),
            (_, true) => Err(not_allowed(peer, "raise a budget")),
            _ => Err(not_allowed(peer, &format!("change the budget of `{}`", tenant.name))),
        }
    }

    /// Whether `peer` may park `tenant`, and let it go on.
    ///
    /// # Errors
    /// [`codes::NOT_ALLOWED`].
    pub fn may_park(&self, peer: &Peer, tenant: &Tenant) -> Result<(), Fault> {
        let may = peer.admin || peer.uid == tenant.owner;
        if may { Ok(()) } else { Err(not_allowed(peer, &format!("park `{}`", tenant.name))) }
    }

    /// Whether `peer` may register as a process of `tenant`.
    pub fn may_join(&self, peer: &Peer, tenant: &Tenant) -> bool {
        peer.uid == tenant.owner || peer.uid == 0
    }
}

fn not_allowed(peer: &Peer, what: &str) -> Fault {
    let message = format!("user {} may not {what} here", peer.uid);
    Fault::new(&codes::NOT_ALLOWED, message, format!("ask root, or become a member of the group `{GROUP}`"))
}

/// The group whose members set budgets, if this machine has it.
pub fn weir_group() -> Option<u32> {
    group_id(&std::fs::read_to_string("/etc/group").unwrap_or_default())
}

/// The id of our group in the text of `/etc/group`. Name services beyond that file stay out of the root process.
fn group_id(text: &str) -> Option<u32> {
    let line = text.lines().find(|line| line.split(':').next() == Some(GROUP))?;
    line.split(':').nth(2)?.parse().ok()
}

/// The supplementary groups of the peer.
fn peer_groups(socket: &impl AsFd) -> Vec<u32> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut length = libc::socklen_t::try_from(size_of_val(groups.as_slice())).unwrap_or(0);
        // SAFETY: `groups` has `length` bytes, the kernel writes at most as many, and `length` outlives the call.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = length as usize / size_of::<u32>();
        if failed == 0 {
            groups.truncate(count);
            return groups;
        }
        if count <= groups.len() || count > MAX_GROUPS {
            return Vec::new(); // not a matter of room: a kernel before 4.13
        }
        groups.resize(count, 0);
    }
}

/// A descriptor of the peer's process, so that a reused process id is never taken for it.
///
/// # Errors
/// The process has gone, or the kernel is older than 5.3.
pub fn pidfd_of(socket: impl AsFd, pid: i32) -> std::io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of_val(&fd)).unwrap_or(0);
    // SAFETY: `fd` has `length` bytes and outlives the call.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    if failed == 0 && fd >= 0 {
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let pid = Pid::from_raw(pid).ok_or(std::io::ErrorKind::NotFound)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_kernel_says_who_the_peer_is() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Authority::here().peer(&ours).unwrap();
        assert_eq!(u32::try_from(peer.pid), Ok(std::process::id()));
        assert!(peer.admin && pidfd_of(&ours, peer.pid).is_ok());
    }

    #[test]
    fn an_owner_may_lower_his_budget_and_park_and_not_raise_it_and_a_stranger_may_do_none_of_it() {
        use crate::control::schema::ClassName;
        use weir_protocol::units::{Bandwidth, Bytes, Nanos, SmShare};
        let budget = |percent| Budget {
            request: SmShare::percent(percent),
            limit: SmShare::FULL,
            memory: Bytes(9),
            copy_limit: Bandwidth(7),
            slo: None,
        };
        let tenant = Tenant {
            id: 1,
            name: "a".into(),
            owner: 1000,
            class: ClassName::Primary,
            oversubscribe: false,
            budget: budget(30),
            latency: None,
            park: Default::default(),
            cells: Vec::new(),
            processes: Vec::new(),
            slots: Vec::new(),
            unreached: Vec::new(),
            out_of_reach: Vec::new(),
            holders: Vec::new(),
            registered: 0,
            budget_at_start: budget(30),
            configured: None,
            made_at: Nanos(0),
        };
        let peer = |uid, admin| Peer { pid: 1, birth: 1, uid, admin };
        let may = |peer, percent| Authority::here().may_set(&peer, &tenant, &budget(percent)).is_ok();
        assert!(may(peer(1000, false), 20) && !may(peer(1000, false), 40));
        let unlimited = Budget { copy_limit: Bandwidth::UNLIMITED, ..budget(20) };
        assert!(Authority::here().may_set(&peer(1000, false), &tenant, &unlimited).is_err());
        assert!(!may(peer(1001, false), 20) && may(peer(1001, true), 40));
        let may_park = |peer| Authority::here().may_park(&peer, &tenant).is_ok();
        assert!(may_park(peer(1000, false)) && may_park(peer(1001, true)) && !may_park(peer(1001, false)));
    }

    #[test]
    fn the_group_is_found_by_its_whole_name() {
        assert_eq!(group_id("root:x:0:\nweirdos:x:7:a\nweir:x:123:a,b\n"), Some(123));
        assert_eq!(group_id("weirdos:x:7:a\n"), None);
    }
}
