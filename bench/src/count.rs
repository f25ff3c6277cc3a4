//! Counting what the measured part of a worker does: system calls by tracing it, allocations and locks by a second
//! preload library.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;

use crate::pair::Setting;
use crate::stage;
use crate::worker::{MARK, Task};

/// What happened between the two marks of one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Calls of the measured function.
    pub calls: u64,
    /// System calls by the whole process.
    pub system_calls: u64,
    /// Allocations by the whole process.
    pub allocations: u64,
    /// Mutexes taken by the whole process.
    pub locks: u64,
}

/// Runs one round of `task` under tracing.
pub fn in_measured_part(setting: &Setting, task: Task) -> std::io::Result<Counts> {
    let counter = stage::dist()?.join("floor/libcounter.so");
    let mut command = setting.command(task)?;
    let preload =
        setting.preload.as_ref().map(|(library, _)| library.display().to_string()).unwrap_or_default();
    command.env("LD_PRELOAD", format!("{preload}:{}", counter.display())).env("WEIR_BENCH_COUNT", "1");
    // SAFETY: between fork and exec only `ptrace` is called, which is allowed there.
    unsafe { command.pre_exec(trace_me) };
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(std::io::Error::other)?;
    if let Some(stdin) = child.stdin.as_mut() {
        stdin.write_all(b"\n")?;
    }
    drop(child.stdin.take());
    let system_calls = trace(pid)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).lines().map_while(Result::ok).for_each(|next| line = next);
    }
    let _ = child.wait();
    parse(&line, system_calls)
        .ok_or_else(|| std::io::Error::other(format!("the worker's counts are missing: `{line}`")))
}

/// `calls allocations locks` of the worker's last line.
fn parse(line: &str, system_calls: u64) -> Option<Counts> {
    let mut numbers = line.split_whitespace().map_while(|word| word.parse().ok());
    let (calls, allocations, locks) = (numbers.next()?, numbers.next()?, numbers.next()?);
    Some(Counts { calls, system_calls, allocations, locks })
}

fn trace_me() -> std::io::Result<()> {
    // SAFETY: asks the kernel that our parent may trace us; no memory is involved.
    match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Follows the main thread from system call to system call until it ends; returns how many lay between the marks,
/// the marks not counted.
fn trace(pid: libc::pid_t) -> std::io::Result<u64> {
    let (mut inside, mut entering, mut count) = (false, true, 0);
    let mut status = wait(pid)?; // stopped by its exec
    loop {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return Ok(count);
        }
        let signal = libc::WSTOPSIG(status);
        if signal == libc::SIGTRAP | 0x80 {
            if entering {
                let marked = is_mark(pid)?;
                count += u64::from(inside && !marked);
                inside ^= marked;
            }
            entering = !entering;
        }
        resume(pid, if signal & !0x80 == libc::SIGTRAP { 0 } else { signal })?;
        status = wait(pid)?;
    }
}

fn wait(pid: libc::pid_t) -> std::io::Result<i32> {
    let mut status = 0;
    // SAFETY: a place for the status of a child of ours.
    match unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(status),
    }
}

fn resume(pid: libc::pid_t, signal: i32) -> std::io::Result<()> {
    // SAFETY: the traced child is stopped; the option marks system-call stops apart from other traps.
    let result = unsafe {
        libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_TRACESYSGOOD);
        libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, signal)
    };
    if result == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the system call that the child is about to make is a mark.
fn is_mark(pid: libc::pid_t) -> std::io::Result<bool> {
    // SAFETY: all-zero is a valid register file, and the kernel fills it for a stopped child.
    let registers = unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        if libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers) == -1 {
            return Err(std::io::Error::last_os_error());
        }
        registers
    };
    Ok(registers.orig_rax == libc::SYS_prctl as u64 && registers.rdi == MARK as u64)
}
