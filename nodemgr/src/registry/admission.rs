//! What may be granted: the checks before a tenant is made or its budget changed. Nothing here changes anything.

use weir_protocol::units::{Bandwidth, Bytes, SmShare};

use super::Registry;
use crate::codes;
use crate::control::schema::{Budget, ClassName, CreateTenant, SetBudget};
use crate::fault::Fault;
use crate::gpus::Device;
use crate::latency::{self, Promise};
use crate::place::check_name;

/// What would be made of a request for a tenant.
pub struct Plan {
    /// Its budget.
    pub budget: Budget,
    /// Its GPUs, by index.
    pub gpus: Vec<usize>,
}

impl Registry {
    /// Checks a request for a tenant by itself; what others hold is checked by [`Self::check_room`].
    pub(super) fn plan(&self, wanted: &CreateTenant) -> Result<Plan, Fault> {
        check_name(&wanted.name)?;
        check_oversubscription(wanted)?;
        let gpus = self.resolve_gpus(&wanted.gpus)?;
        let Some(memory) = wanted.memory_bytes.map(Bytes) else {
            let free = gpus.iter().map(|gpu| self.free_memory(*gpu, None).0).min().unwrap_or(0);
            let message = "a memory limit is missing";
            return Err(Fault::new(
                &codes::MEMORY_MISSING,
                message,
                format!("add --memory; {} are free", floor(Bytes(free))),
            ));
        };
        let Some(request) = requested(wanted) else {
            let free = gpus.iter().map(|gpu| self.free_share(*gpu, None)).min().unwrap_or_default();
            let message = format!("a {} tenant needs a request", wanted.class.as_str());
            return Err(Fault::new(
                &codes::REQUEST_MISSING,
                message,
                format!("add --request; {free} are free"),
            ));
        };
        let budget = asked(wanted, request, memory)?;
        self.check_budget(&budget, wanted.class, &gpus)?;
        Ok(Plan { budget, gpus })
    }

    /// Whether the tenant could be made, beside those that there are.
    ///
    /// # Errors
    /// Whatever [`codes`] has for budgets.
    pub fn consider_new(&self, wanted: &CreateTenant) -> Result<(), Fault> {
        let plan = self.plan(wanted)?;
        self.check_room(&plan.budget, &plan.gpus, None)
    }

    /// The budget that `change` makes of `old`.
    pub(super) fn changed(&self, old: &Budget, change: &SetBudget) -> Result<Budget, Fault> {
        let share = |what, new: Option<u16>, old| new.map_or(Ok(old), |new| checked_share(what, new));
        Ok(Budget {
            request: share("request", change.request_permille, old.request)?,
            limit: share("limit", change.limit_permille, old.limit)?,
            memory: change.memory_bytes.map_or(old.memory, Bytes),
            copy_limit: change.copy_limit_bytes_per_s.map_or(old.copy_limit, Bandwidth),
            slo: change.slo.as_deref().map(latency::parse).transpose()?.or(old.slo),
        })
    }

    /// Whether a budget makes sense by itself, on cards as they are.
    pub(super) fn check_budget(
        &self,
        budget: &Budget,
        class: ClassName,
        gpus: &[usize],
    ) -> Result<(), Fault> {
        if budget.request == SmShare::ZERO && class != ClassName::Filler {
            let message =
                format!("a request of 0 % is no guarantee, and a {} tenant needs one", class.as_str());
            return Err(Fault::new(
                &codes::REQUEST_MISSING,
                message,
                "request at least 0.1%, or use --class filler",
            ));
        }
        if budget.limit == SmShare::ZERO {
            let message = "under a limit of 0 % nothing would ever run";
            return Err(Fault::new(&codes::LIMIT_BELOW_REQUEST, message, "give a --limit of at least 0.1%"));
        }
        if budget.limit < budget.request {
            let message = format!("the limit {} lies below the request {}", budget.limit, budget.request);
            return Err(Fault::new(&codes::LIMIT_BELOW_REQUEST, message, "raise --limit or lower --request"));
        }
        if budget.memory == Bytes(0) {
            let message = "a memory limit of 0 B holds nothing";
            return Err(Fault::new(&codes::SIZE, message, "give a size such as `2GiB`"));
        }
        for gpu in gpus {
            let usable = self.usable_memory(*gpu);
            if budget.memory > usable {
                let message = format!(
                    "{} is more than GPU {gpu} can give: {}",
                    budget.memory,
                    offer(self.total_memory(*gpu), usable)
                );
                let help = format!("ask for at most {}", floor(usable));
                return Err(Fault::new(&codes::MEMORY_OVER_DEVICE, message, help));
            }
        }
        Ok(())
    }

    /// Whether the budget fits beside what others hold; `but` is left out of the sums.
    pub(super) fn check_room(&self, budget: &Budget, gpus: &[usize], but: Option<u64>) -> Result<(), Fault> {
        for gpu in gpus {
            let free = self.free_share(*gpu, but);
            if budget.request > free {
                let message = format!(
                    "a request of {} does not fit on GPU {gpu}: {free} are free{}",
                    budget.request,
                    self.holders_of(*gpu, but, |t| Some(t.budget.request.to_string()))
                );
                let help = format!("request at most {free}, or lower another tenant with `weir set`");
                return Err(Fault::new(&codes::SHARE_TAKEN, message, help));
            }
        }
        self.check_memory(budget.memory, gpus, but)
    }

    /// The same for memory alone.
    pub(super) fn check_memory(&self, memory: Bytes, gpus: &[usize], but: Option<u64>) -> Result<(), Fault> {
        for gpu in gpus {
            let free = self.free_memory(*gpu, but);
            // Whoever has so much already is refused nothing for what has been withheld since.
            let has = but.and_then(|id| self.tenant(id)).filter(|tenant| !tenant.is_parked());
            let has = has.map_or(Bytes(0), |tenant| tenant.budget.memory);
            if memory > free.max(has) {
                let message = format!(
                    "a memory limit of {memory} does not fit on GPU {gpu}: {} are free{}{}",
                    floor(free),
                    self.holders_of(*gpu, but, |t| (!t.is_parked()).then(|| t.budget.memory.to_string())),
                    self.withheld_on(*gpu)
                );
                let help = format!(
                    "ask for at most {}, lower another tenant with `weir set`, or park an idle one with `weir park`",
                    floor(free)
                );
                return Err(Fault::new(&codes::MEMORY_TAKEN, message, help));
            }
        }
        Ok(())
    }

    pub(super) fn on_gpu(&self, gpu: usize, but: Option<u64>) -> impl Iterator<Item = &super::Tenant> {
        self.tenants.iter().filter(move |t| Some(t.id) != but && t.cells.iter().any(|cell| cell.gpu == gpu))
    }

    /// `; a holds 60 %, b holds 30 %`.
    fn holders_of(&self, gpu: usize, but: Option<u64>, what: fn(&super::Tenant) -> Option<String>) -> String {
        let holders = self.on_gpu(gpu, but).filter_map(|t| Some(format!("`{}` holds {}", t.name, what(t)?)));
        let holders: Vec<_> = holders.collect();
        if holders.is_empty() { String::new() } else { format!("; {}", holders.join(", ")) }
    }

    fn free_share(&self, gpu: usize, but: Option<u64>) -> SmShare {
        let taken: u16 = self.on_gpu(gpu, but).map(|t| t.budget.request.as_permille()).sum();
        SmShare::permille(1000u16.saturating_sub(taken))
    }

    /// What no tenant has that is there: a parked one's memory is on the host.
    pub(super) fn free_memory(&self, gpu: usize, but: Option<u64>) -> Bytes {
        let there = self.on_gpu(gpu, but).filter(|tenant| !tenant.is_parked());
        let taken = there.fold(0u64, |sum, t| sum.saturating_add(t.budget.memory.0));
        let withheld = self.guarded.withheld(gpu).0.saturating_add(self.drains_on(gpu).0);
        Bytes(self.usable_memory(gpu).0.saturating_sub(taken).saturating_sub(withheld))
    }

    /// What dead processes of tenants that have gone hold still. Those of a tenant that is there hold what is its.
    fn drains_on(&self, gpu: usize) -> Bytes {
        self.draining.nobodys(gpu, |id| self.tenant(id).is_some_and(|tenant| !tenant.is_parked()))
    }

    /// `; processes without a budget hold 2 GiB`.
    fn withheld_on(&self, gpu: usize) -> String {
        let some = |what: &str, bytes: Bytes| match bytes {
            Bytes(0) => String::new(),
            bytes => format!("; {what} hold {bytes}"),
        };
        some("processes without a budget", self.guarded.withheld(gpu))
            + &some("processes that have died", self.drains_on(gpu))
    }

    /// The card's memory less the reserve.
    pub fn usable_memory(&self, gpu: usize) -> Bytes {
        let total = self.total_memory(gpu).0;
        Bytes(total.saturating_sub(self.reserve.map_or(total / 50, |reserve| reserve.0)))
    }

    fn total_memory(&self, gpu: usize) -> Bytes {
        self.gpus.devices.get(gpu).map_or(Bytes(0), |device| device.memory_total)
    }

    /// The GPUs that are named, by index; without a name the first.
    ///
    /// # Errors
    /// One that is not there, or is named twice.
    pub fn resolve_gpus(&self, wanted: &[String]) -> Result<Vec<usize>, Fault> {
        if wanted.is_empty() {
            return Ok(vec![0]);
        }
        let mut found = Vec::with_capacity(wanted.len());
        for text in wanted {
            let gpu = self.resolve_gpu(text)?;
            if found.contains(&gpu) {
                let message = format!("GPU {gpu} is named twice (as `{text}` the second time)");
                return Err(Fault::new(&codes::GPU_DUPLICATE, message, "name each GPU once"));
            }
            found.push(gpu);
        }
        Ok(found)
    }

    fn resolve_gpu(&self, text: &str) -> Result<usize, Fault> {
        if text.starts_with("MIG-") {
            let message = format!("`{}` is a MIG instance", text.escape_debug());
            return Err(Fault::new(&codes::GPU_MIG, message, "name the whole GPU that it lies on"));
        }
        let index = text.parse::<usize>().ok().filter(|index| *index < self.gpus.devices.len());
        // As CUDA reads a UUID: its beginning is enough where no other begins so.
        let by_uuid = || {
            let begins =
                |device: &Device| device.uuid_text().to_lowercase().starts_with(&text.to_lowercase());
            let mut found = self.gpus.devices.iter().enumerate().filter(|(_, device)| begins(device));
            found.next().filter(|_| text.starts_with("GPU-") && found.next().is_none()).map(|(at, _)| at)
        };
        index.or_else(by_uuid).ok_or_else(|| {
            let known: Vec<_> = self
                .gpus
                .devices
                .iter()
                .enumerate()
                .map(|(i, d)| format!("{i} ({})", d.uuid_text()))
                .collect();
            let message = format!("there is no GPU `{}` on this node", text.escape_debug());
            Fault::new(&codes::GPU_UNKNOWN, message, format!("choose from {}", known.join(", ")))
        })
    }
}

fn requested(wanted: &CreateTenant) -> Option<u16> {
    wanted.request_permille.or((wanted.class == ClassName::Filler).then_some(0))
}

/// The budget that somebody asks for, wherever that may be; nothing if it cannot be one.
pub fn budget_of(wanted: &CreateTenant) -> Option<Budget> {
    asked(wanted, requested(wanted)?, wanted.memory_bytes.map(Bytes)?).ok()
}

/// The budget that is asked for, with what goes without saying.
fn asked(wanted: &CreateTenant, request: u16, memory: Bytes) -> Result<Budget, Fault> {
    Ok(Budget {
        request: checked_share("request", request)?,
        limit: checked_share("limit", wanted.limit_permille.unwrap_or(1000))?,
        memory,
        copy_limit: Bandwidth(wanted.copy_limit_bytes_per_s),
        slo: promise(wanted)?,
    })
}

/// What lies on the host is fetched over the bus, at the neighbours' expense.
fn check_oversubscription(wanted: &CreateTenant) -> Result<(), Fault> {
    if !wanted.oversubscribe || wanted.class == ClassName::Filler {
        return Ok(());
    }
    let message = format!("a {} tenant cannot go beyond its memory limit", wanted.class.as_str());
    let help = "leave out --oversubscribe and give a larger --memory, or use --class filler";
    Err(Fault::new(&codes::OVERSUBSCRIBE, message, help))
}

/// What is promised, and to be told by whom: neither is of use without the other.
fn promise(wanted: &CreateTenant) -> Result<Option<Promise>, Fault> {
    let refuse = |message: &str, help: &str| Err(Fault::new(&codes::SLO, message, help));
    match (&wanted.slo, &wanted.latency_from) {
        (None, None) => Ok(None),
        (Some(text), Some(source)) => {
            let promise = latency::parse(text)?;
            source.check()?;
            Ok(Some(promise))
        }
        (Some(text), None) => {
            latency::parse(text)?;
            refuse(
                "nobody would tell whether the SLO is kept",
                "add --latency-from URL METRIC, or hint METRIC",
            )
        }
        (None, Some(_)) => refuse("latencies without an SLO lead to nothing", "add --slo 'p95 < 200ms'"),
    }
}

fn checked_share(what: &str, permille: u16) -> Result<SmShare, Fault> {
    if permille <= 1000 {
        return Ok(SmShare::permille(permille));
    }
    let message = format!("a {what} of {permille} thousandths is more than one GPU");
    Err(Fault::new(&codes::SHARE, message, "give 0 to 1000 thousandths"))
}

/// What a card of `total` can give, and why that is not all of it: `39.2 GiB (40 GiB less a reserve of 819.2 MiB)`.
fn offer(total: Bytes, usable: Bytes) -> String {
    match Bytes(total.0.saturating_sub(usable.0)) {
        Bytes(0) => total.to_string(),
        reserve => format!("{} ({total} less a reserve of {reserve})", floor(usable)),
    }
}

/// `bytes` cut to a tenth of the unit in which they are printed: what is offered, typed back, must fit.
fn floor(bytes: Bytes) -> Bytes {
    let unit = [1u64 << 30, 1 << 20, 1 << 10].into_iter().find(|unit| bytes.0 >= *unit).unwrap_or(1);
    let cut = |tenths: u128| u64::try_from(tenths * u128::from(unit) / 10).unwrap_or(bytes.0);
    Bytes(cut(u128::from(bytes.0) * 10 / u128::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_offer_says_what_the_reserve_is() {
        let total = Bytes::gib(40);
        assert_eq!(
            offer(total, Bytes(total.0 - total.0 / 50)),
            "39.2 GiB (40 GiB less a reserve of 819.2 MiB)"
        );
        assert_eq!(offer(total, total), "40 GiB");
    }

    proptest! {
        #[test]
        fn what_is_offered_fits_when_it_is_typed_back(bytes in 1u64..1 << 45) {
            let typed: Bytes = floor(Bytes(bytes)).to_string().parse().unwrap();
            prop_assert!(typed <= Bytes(bytes) && bytes - typed.0 <= bytes / 10, "{typed:?}");
        }
    }
}
