//! What a daemon that lives for months keeps in memory. Most of its code runs once, when it starts: the command line, the
//! configuration, the log, the driver's management library. The system keeps all of that mapped until memory is short;
//! we give it up at once. What is needed again comes back from the file, page by page.

use std::ffi::c_void;

use rustix::mm::Advice;

/// Gives up the code that has run so far.
pub fn forget_start() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, length) in maps.lines().filter_map(code) {
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(start);
        // SAFETY: a private mapping of a file that nobody can write through it: its pages are the file's own, and are read
        // from there again at the next access. A failure leaves them where they are.
        let _ = unsafe { rustix::mm::madvise(start, length, Advice::LinuxDontNeed) };
    }
}

/// The address and length of a mapping of code, by its line in `/proc/self/maps`:
/// `55d0c0e00000-55d0c12a9000 r-xp 00153000 fe:00 71    /usr/bin/weir`.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    is_code.then_some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_that_comes_from_a_file_is_given_up() {
        let ours = "55d0c0e00000-55d0c12a9000 r-xp 00153000 fe:00 71    /usr/bin/weir";
        assert_eq!(code(ours), Some((0x55d0_c0e0_0000, 0x4a_9000)));
        for other in [
            "55d0c12a9000-55d0c12cd000 r--p 005fc000 fe:00 71    /usr/bin/weir", // relocated: not the file's any more
            "55d0c12cd000-55d0c12ce000 rw-p 00620000 fe:00 71    /usr/bin/weir",
            "7f13c0e00000-7f13c0e01000 r-xp 00000000 00:00 0",
            "7ffd1b5f2000-7ffd1b5f4000 r-xp 00000000 00:00 0     [vdso]",
            "7f13c0e00000-7f13c0e01000 rwxp 00000000 fe:00 71    /tmp/jit",
            "",
        ] {
            assert_eq!(code(other), None, "{other}");
        }
    }

    #[test]
    fn whoever_forgets_his_start_goes_on() {
        forget_start();
        assert_eq!(code("nonsense"), None);
    }
}
