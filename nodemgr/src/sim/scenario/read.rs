//! Reading a scenario, and refusing one that makes no sense.

use std::path::Path;

use super::values::share;
use super::{Scenario, Tenant};
use crate::codes;
use crate::config;
use crate::fault::Fault;

impl Scenario {
    /// Reads the file.
    ///
    /// # Errors
    /// [`codes::SCENARIO`], with the line where there is one.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            refuse(path, format!("cannot be read: {error}"), "name a TOML file; bench/scenarios has examples")
        })?;
        Self::parse(&text, path)
    }

    /// The scenario in `text`; `path` is for messages only.
    ///
    /// # Errors
    /// [`codes::SCENARIO`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Fault> {
        let scenario: Self = toml::from_str(text)
            .map_err(|error| config::misunderstood(&codes::SCENARIO, text, path, &error))?;
        scenario.check().map_err(|(what, help)| refuse(path, what, help))?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), (String, &'static str)> {
        if !(self.seconds > 0.0 && self.seconds <= 86_400.0 && self.warm_up_seconds >= 0.0) {
            return Err((
                format!("has seconds = {}", self.seconds),
                "simulate more than nothing and at most a day",
            ));
        }
        if self.tenant.is_empty() {
            return Err(("has no tenants".into(), "add a [[tenant]]"));
        }
        self.tenant.iter().try_for_each(check_tenant)
    }
}

fn check_tenant(tenant: &Tenant) -> Result<(), (String, &'static str)> {
    let name = tenant.name.escape_debug();
    let kinds = [tenant.inference.is_some(), tenant.training.is_some(), tenant.offline.is_some()];
    if kinds.into_iter().filter(|kind| *kind).count() != 1 {
        let help = "give it one of [tenant.inference], [tenant.training] and [tenant.offline]";
        return Err((format!("has a tenant `{name}` that does not run exactly one thing"), help));
    }
    if tenant.slo.is_some() && tenant.promise().is_none() {
        let help = "write a quantile and its bound: \"p95 < 200ms\"";
        return Err((format!("has a tenant `{name}` whose slo is none"), help));
    }
    for (key, text) in [("request", &tenant.request), ("limit", &tenant.limit)] {
        if let Err(fault) = share(key, text.as_deref()) {
            let help = "write a percentage with its sign, such as \"30%\"";
            return Err((format!("has a tenant `{name}`: {}", fault.message), help));
        }
    }
    let busy = |work: f64, unit: f64| work > 0.0 && unit > 0.0;
    let works = match (&tenant.inference, &tenant.training, &tenant.offline) {
        (Some(i), ..) => busy(i.prefill_ms + i.prefill_each_ms, i.unit_us) && i.batch > 0,
        (_, Some(t), _) => busy(t.compute_ms, t.unit_us),
        (.., Some(o)) => busy(o.batch_ms, o.unit_us),
        _ => false,
    };
    let decodes = tenant.inference.as_ref().is_none_or(|i| i.tokens <= 1.0 || i.decode_ms > 0.0);
    if !works || !decodes {
        let help = "give prefill_ms, compute_ms or batch_ms, decode_ms where there are tokens, and a unit_us above zero";
        return Err((format!("has a tenant `{name}` without work"), help));
    }
    Ok(())
}

fn refuse(path: &Path, what: String, help: &str) -> Fault {
    Fault::new(&codes::SCENARIO, format!("`{}` {what}", path.display()), help)
}
