//! Kernels as PTX, the same for both kinds of GPU. The simulated one takes their times from its table and looks at no body. On a
//! real one a body works for so long: rounds of dependent multiply-adds, of which [`PACE`] says how many take a microsecond. So
//! what a kernel does is work and not a wait: beside others it gets on as far as the GPU lets it.

use std::ffi::CString;

/// Names the variable with the rounds of a microsecond on this GPU, measured when nothing else runs; without it kernels end at once.
pub const PACE: &str = "WEIR_BENCH_PACE";

/// A kernel of a module.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    /// Its name, by which the simulated GPU knows its time.
    pub name: &'a str,
    /// What it does on a real one.
    pub body: Body,
}

/// What a kernel does.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// Nothing.
    Nothing,
    /// Works for so many microseconds, in each block alike.
    Work(f64),
    /// The same, and lets the kernel behind it begin at once, if that was launched as dependent: from `sm_90` on, in a module of its own.
    Early(f64),
    /// Runs until the 32-bit word at its first parameter, an address, is no longer 0.
    Spin,
    /// Writes where nothing is.
    Crash,
}

impl<'a> Kernel<'a> {
    /// One that works.
    pub const fn work(name: &'a str, time_us: f64) -> Self {
        Self { name, body: Body::Work(time_us) }
    }

    /// One that does nothing.
    pub const fn nothing(name: &'a str) -> Self {
        Self { name, body: Body::Nothing }
    }
}

/// The text of a module with these kernels.
pub fn image(kernels: &[Kernel<'_>]) -> CString {
    let pace = std::env::var(PACE).ok().and_then(|pace| pace.parse().ok());
    CString::new(text(kernels, pace)).unwrap_or_default()
}

fn text(kernels: &[Kernel<'_>], pace: Option<f64>) -> String {
    let early = kernels.iter().any(|kernel| matches!(kernel.body, Body::Early(_)));
    let (version, target) = if early { ("7.8", "sm_90") } else { ("7.0", "sm_80") };
    let head =
        format!(".version {version}\n.target {target}\n.address_size 64\n.global .align 4 .f32 weir_sink;\n");
    head + &kernels.iter().map(|kernel| entry(*kernel, pace)).collect::<String>()
}

fn entry(kernel: Kernel<'_>, pace: Option<f64>) -> String {
    let name = kernel.name;
    let rounds = |time_us: f64| pace.map(|pace| rounds(time_us * pace));
    match kernel.body {
        Body::Work(time_us) => rounds(time_us).map_or_else(|| nothing(name), |rounds| work(name, rounds, "")),
        Body::Early(time_us) => {
            rounds(time_us).map_or_else(|| nothing(name), |rounds| work(name, rounds, TRIGGER))
        }
        Body::Nothing => nothing(name),
        Body::Spin => format!(".visible .entry {name}(.param .u64 word)\n{SPIN}"),
        Body::Crash => format!(".visible .entry {name}()\n{CRASH}"),
    }
}

fn nothing(name: &str) -> String {
    format!(".visible .entry {name}()\n{{\n\tret;\n}}\n")
}

/// At least one, and no more than the counter holds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within the range that it is cut to"
)]
fn rounds(count: f64) -> u32 {
    count.round().clamp(1.0, 4e9) as u32
}

/// The number of rounds is read and not compiled in, or the compiler would make something else of each of them. The sum is stored
/// in a case that never comes, or it would make nothing of any.
fn work(name: &str, rounds: u32, first: &str) -> String {
    format!(
        ".const .align 4 .u32 {name}_rounds = {rounds};
.visible .entry {name}()
{{
\t.reg .pred %p<3>;
\t.reg .f32 %f<2>;
\t.reg .b32 %r<4>;
{first}\tmov.u32 %r1, %tid.x;
\tcvt.rn.f32.u32 %f1, %r1;
\tld.const.u32 %r2, [{name}_rounds];
again:
\tfma.rn.f32 %f1, %f1, 0f3F7FFFF0, 0f3A83126F;
\tfma.rn.f32 %f1, %f1, 0f3F7FFFF0, 0f3A83126F;
\tfma.rn.f32 %f1, %f1, 0f3F7FFFF0, 0f3A83126F;
\tfma.rn.f32 %f1, %f1, 0f3F7FFFF0, 0f3A83126F;
\tsub.u32 %r2, %r2, 1;
\tsetp.ne.u32 %p1, %r2, 0;
\t@%p1 bra again;
\tsetp.eq.f32 %p2, %f1, 0fFF7FFFFF;
\t@%p2 st.global.f32 [weir_sink], %f1;
\tret;
}}
"
    )
}

/// What a kernel says whose successor may begin.
const TRIGGER: &str = "\tgriddepcontrol.launch_dependents;\n";

const SPIN: &str = "{
\t.reg .pred %p<2>;
\t.reg .b64 %rd<2>;
\t.reg .b32 %r<2>;
\tld.param.u64 %rd1, [word];
wait:
\tld.volatile.global.u32 %r1, [%rd1];
\tsetp.eq.u32 %p1, %r1, 0;
\t@%p1 bra wait;
\tret;
}
";

const CRASH: &str = "{
\t.reg .b64 %rd<2>;
\t.reg .b32 %r<2>;
\tmov.u64 %rd1, 16;
\tmov.u32 %r1, 1;
\tst.volatile.global.u32 [%rd1], %r1;
\tret;
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_pace_no_kernel_works_and_with_one_each_works_as_long_as_it_says() {
        let kernels = [Kernel::work("long", 100.0), Kernel::nothing("empty")];
        assert!(!text(&kernels, None).contains("fma"));
        let working = text(&kernels, Some(70.5));
        assert!(working.contains(".u32 long_rounds = 7050;") && working.contains("[long_rounds]"));
        assert!(!working.contains("empty_rounds"));
        assert!(
            text(&[Kernel::work("none", 0.0)], Some(70.0)).contains("none_rounds = 1;"),
            "zero would be four billion"
        );
    }

    #[test]
    fn what_lets_its_successor_begin_asks_for_a_gpu_that_can() {
        let early = text(&[Kernel { name: "early", body: Body::Early(5.0) }], Some(70.0));
        assert!(early.contains(".target sm_90") && early.contains("griddepcontrol.launch_dependents;"));
        assert!(text(&[Kernel::work("late", 5.0)], Some(70.0)).contains(".target sm_80"));
    }

    #[test]
    fn what_spins_has_the_parameter_that_it_looks_at() {
        let spin = text(&[Kernel { name: "spin", body: Body::Spin }], None);
        assert!(spin.contains(".entry spin(.param .u64 word)") && spin.contains("ld.volatile.global.u32"));
    }
}
