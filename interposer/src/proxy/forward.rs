//! The jumps: one exported function for each name of a list, which goes where the name goes.

/// An exported function for each name, numbered from `$first` on; `target` tells them by number.
macro_rules! forwarders {
    ($first:expr, $($name:ident)*) => {
        /// The place of each name in the lists below.
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "variants are named as the symbols they number")]
        #[derive(Clone, Copy)]
        enum Index { $($name),* }

        const NAMES: &[&std::ffi::CStr] = &[$(crate::hooks::c_name!($name)),*];

        /// Where each name goes; null before its first call.
        static TARGETS: [std::sync::atomic::AtomicPtr<std::ffi::c_void>; NAMES.len()] =
            [const { std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];

        /// The name of this number.
        pub fn target(index: u32) -> Option<crate::proxy::Target> {
            let at = index.checked_sub($first)? as usize;
            let (name, place) = (NAMES.get(at)?, TARGETS.get(at)?);
            Some(crate::proxy::Target { name, place, absent: absent as *const std::ffi::c_void })
        }

        $(
            /// The real function of this name, or our hook for it.
            ///
            /// # Safety
            /// As the real function of this name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case, reason = "the real library's names")]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    "mov r11, qword ptr [rip + {targets} + {offset}]",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2: mov r11d, {index}",
                    "jmp {first_call}",
                    targets = sym TARGETS,
                    offset = const Index::$name as usize * 8,
                    index = const $first as usize + Index::$name as usize,
                    first_call = sym crate::proxy::first_call,
                )
            }
        )*
    };
}
