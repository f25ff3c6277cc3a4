//! What a GPU says of its power and its clocks. Each figure is absent where the card or its driver does not tell it.

use weir_protocol::units::Nanos;

/// At one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// When it was read, by the manager's clock.
    pub at: Nanos,
    /// What it draws, in mW; from Ampere on (but for GA100) the mean of a second.
    pub draw_mw: Option<u32>,
    /// What it may draw, in mW.
    pub limit_mw: Option<u32>,
    /// Clock of the SMs, in MHz.
    pub sm_mhz: Option<u32>,
    /// That clock at most, in MHz.
    pub sm_most_mhz: Option<u32>,
    /// What holds the clocks down.
    pub reasons: Option<Reasons>,
    /// What it has taken since the driver was loaded, in mJ.
    pub energy_mj: Option<u64>,
}

impl Power {
    /// How much longer work takes at the clock of the SMs than at its highest, in thousandths; 1,000 where neither power nor heat
    /// holds it back.
    pub fn slowed_permille(&self) -> Option<u32> {
        if !self.reasons?.held_back().is_any() {
            return Some(1_000);
        }
        let permille = (u64::from(self.sm_most_mhz?) * 1_000).checked_div(self.sm_mhz?.into())?;
        Some(u32::try_from(permille).unwrap_or(u32::MAX).max(1_000))
    }
}

/// `nvmlClocksEventReasons`: one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reasons(pub u64);

/// Clocks are lowered to keep to the power limit.
const SW_POWER_CAP: u64 = 0x4;
/// The card or its memory is hotter than it may be.
const SW_THERMAL: u64 = 0x20;
/// The hardware halves the clock, or worse, since it is too hot.
const HW_THERMAL: u64 = 0x40;
/// The same, since the power supply wants it so.
const HW_POWER_BRAKE: u64 = 0x80;

/// The reasons by the names that `nvidia-smi` has for them. Source: NVML API reference, NvmlClocksEventReasons.
const NAMES: [(u64, &str); 9] = [
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (SW_POWER_CAP, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (SW_THERMAL, "sw_thermal_slowdown"),
    (HW_THERMAL, "hw_thermal_slowdown"),
    (HW_POWER_BRAKE, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
];

impl Reasons {
    /// Power and heat, to which whoever works on the GPU adds. Not `hw_slowdown`: by the reference that is shown when clocks or
    /// performance states merely change, too, and heat and the brake have bits of their own.
    pub const HOLD_BACK: Self = Self(SW_POWER_CAP | SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE);

    /// Those of them that hold clocks back by power or heat.
    pub fn held_back(self) -> Self {
        Self(self.0 & Self::HOLD_BACK.0)
    }

    /// Whether there are any.
    pub fn is_any(self) -> bool {
        self.0 != 0
    }

    /// Their names.
    pub fn names(self) -> Vec<String> {
        let held = NAMES.iter().filter(|(bit, _)| self.0 & bit != 0);
        held.map(|(_, name)| (*name).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_and_heat_hold_clocks_back_and_nothing_else_does() {
        // gpu-truths, rule 17; NVML API reference, NvmlClocksEventReasons.
        let all = Reasons(u64::MAX);
        let held = ["sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"];
        assert_eq!(all.held_back().names(), held);
        assert_eq!(all.names().len(), NAMES.len());
        assert!(!Reasons(0x1 | 0x2 | 0x8 | 0x10 | 0x100).held_back().is_any());
    }
}
