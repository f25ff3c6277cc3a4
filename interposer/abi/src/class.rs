//! What each function of the driver means to a budget. The class stands in the table beside the symbol; `tests/headers`
//! writes a new symbol there without one, which does not build: somebody has to look at every function that a new CUDA
//! brings.

/// Declares the classes from their lines, so that documents can print what the code says.
macro_rules! classes {
    ($($(#[doc = $line:literal])+ $name:ident,)*) => {
        /// What a function is to Weir.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Class {
            $($(#[doc = $line])+ $name,)*
        }

        impl Class {
            /// Every class with its one line.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, concat!($($line),+)),)*];
        }
    };
}

classes! {
    /// Starts work on the SMs: charged in time, and held at the gate.
    Launch,
    /// Makes the device memory grow that the process holds, or the references to it, or what will grow (a pool).
    Allocate,
    /// Gives device memory or a reference to it back, at once or in stream order.
    Free,
    /// Tells how much memory the device has, or has left: shows the budget.
    Query,
    /// Begins or ends the capture of a stream, in which nothing of ours may be.
    Capture,
    /// Makes, changes or ends an executable graph: what its launch will cost.
    Graph,
    /// Returns when work is done, or says that it is.
    Synchronize,
    /// Starts the driver, makes, ends or switches contexts, or ends a stream: where a thread's work goes.
    Context,
    /// Hands out functions: the driver's own, or kernels by name.
    Lookup,
    /// Copies, fills, prefetches or unpacks memory: the copy engines' work, or small kernels of the driver's own.
    Copy,
    /// Exports, imports or maps memory that has an owner already, in this or another process or on another device.
    Share,
    /// Orders work: streams that wait for each other, events, waits, flags in memory, host functions.
    Order,
    /// None of these: neither time nor memory of the device changes hands.
    Neutral,
}

impl Class {
    /// Whether a budget has a hole where a symbol of this class is not hooked: such a symbol stands on the list of
    /// exceptions, with its reason, or has a hook.
    #[must_use]
    pub const fn is_enforced(self) -> bool {
        matches!(
            self,
            Self::Launch
                | Self::Allocate
                | Self::Free
                | Self::Query
                | Self::Capture
                | Self::Context
                | Self::Copy
                | Self::Lookup
                | Self::Share
        )
    }
}
