//! Which device class serves a rate of requests for the least money: PALDIA's choice, over the devices that are named.

use serde::Serialize;

use super::explain::Explained;
use crate::cluster::DeviceClass;
use crate::fault::{Fault, USAGE};
use crate::place::paldia::{Class, Hardware, Promise, judge};
use crate::profile::{Inference, Profile};

/// What a service needs of one device class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Serving {
    pub service: String,
    /// The SLO in words.
    pub slo: String,
    pub gpus: usize,
    /// Batches that run together on each of them.
    pub together: usize,
    /// The SLO's quantile, in milliseconds.
    pub predicted_ms: f64,
    pub cost_per_hour: f64,
    /// Whether no other device costs less.
    pub cheapest: bool,
}

/// What comes of one device class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served {
    /// What the services need of it; nothing of those it does not suffice for.
    pub rows: Vec<Serving>,
    /// Why it is taken for each service, or not.
    pub explained: Vec<Explained>,
}

/// For each device what the services need of it at `rate` requests a second each, and why it is taken or not.
///
/// # Errors
/// No inference among the profiles, or a device without a price.
pub fn serving(devices: &[DeviceClass], profiles: &[Profile], rate: f64) -> Result<Vec<Served>, Fault> {
    let asked: Vec<_> =
        profiles.iter().filter_map(|profile| Some((profile, profile.inference.as_ref()?))).collect();
    if asked.is_empty() {
        let help = "name a profile of inference, as `weir-cluster profile --slo` writes it";
        return Err(Fault::new("nothing that is asked for has an SLO to keep at that rate", help).exit(USAGE));
    }
    if let Some(device) = devices.iter().find(|device| device.cost_per_hour == 0.0) {
        let message = format!("what `{}` costs is not said", device.name);
        return Err(Fault::new(message, "name devices with their price an hour: `--device T4=16GiB,0.35`")
            .exit(USAGE));
    }
    let mut all = vec![Served::default(); devices.len()];
    for (profile, inference) in asked {
        let classes: Vec<_> = devices.iter().filter_map(|device| Class::of(device, profile)).collect();
        let promise = Promise { part: inference.slo.quantile(), within_ms: inference.slo.bound_ms() };
        let batches = rate / f64::from(inference.batch);
        for (served, judged) in all.iter_mut().zip(judge(&classes, batches, promise)) {
            let taken = judged.not_taken.is_none();
            let hardware = judged.hardware.as_ref();
            served.rows.extend(hardware.map(|hardware| row(profile, inference, hardware, taken)));
            served.explained.push(Explained::of(profile, inference, judged));
        }
    }
    Ok(all)
}

fn row(profile: &Profile, inference: &Inference, hardware: &Hardware, cheapest: bool) -> Serving {
    Serving {
        service: profile.name.clone(),
        slo: inference.slo.to_string(),
        gpus: hardware.gpus,
        together: hardware.choice.together,
        predicted_ms: hardware.choice.quantile_ms,
        cost_per_hour: hardware.cost_per_h,
        cheapest,
    }
}

/// One line for people.
pub fn line(serving: &Serving) -> String {
    let Serving { service, slo, gpus, together, predicted_ms, cost_per_hour, cheapest } = serving;
    let best = if *cheapest { ", the cheapest" } else { "" };
    format!(
        "  {service} ({slo}): {gpus} GPUs, {together} together on each, {predicted_ms:.1} ms, {cost_per_hour:.2} an hour{best}"
    )
}

#[cfg(test)]
mod tests {
    use weir_protocol::units::Bytes;

    use super::*;
    use crate::control::policies::tests::profile;

    fn device(name: &str, gib: u64, cost_per_hour: f64, speed: f64) -> DeviceClass {
        DeviceClass { cost_per_hour, speed, ..DeviceClass::new(name, Bytes::gib(gib)) }
    }

    /// The device that is cheapest for a server of 120 ms a batch of 8, which promises 200 ms.
    fn best(devices: &[DeviceClass], rate: f64) -> Option<(String, usize)> {
        let all = serving(devices, &[profile()], rate).unwrap();
        let mut found =
            devices.iter().zip(&all).filter_map(|(device, served)| Some((device, served.rows.first()?)));
        found.find(|(_, row)| row.cheapest).map(|(device, row)| (device.name.clone(), row.gpus))
    }

    #[test]
    fn the_cheapest_device_that_keeps_the_slo_is_named() {
        let devices = [
            device("slow", 16, 0.2, 0.5),
            device("small", 0, 0.1, 9.0),
            device("plain", 16, 1.0, 1.0),
            device("fast", 16, 4.0, 8.0),
        ];
        assert_eq!(
            best(&devices, 4.0),
            Some(("plain".into(), 1)),
            "the slow one needs 240 ms, the small one has no memory"
        );
        let (name, gpus) = best(&devices, 4_000.0).unwrap();
        assert_eq!(name, "fast", "eight times as fast for four times the price");
        assert!(gpus > 1, "{gpus}");
        assert_eq!(best(&devices[..2], 4.0), None);
    }

    #[test]
    fn every_device_says_why_it_is_taken_or_not() {
        let devices = [
            device("slow", 16, 0.2, 0.5),
            device("small", 0, 0.1, 9.0),
            device("plain", 16, 1.0, 1.0),
            device("fast", 16, 4.0, 8.0),
            device("later", 16, 1.0, 0.9),
            device("alike", 16, 1.0, 1.0),
        ];
        let lines = |rate| -> Vec<_> {
            let all = serving(&devices, &[profile()], rate).unwrap();
            all.iter().flat_map(|served| served.explained.iter().map(Explained::line)).collect()
        };
        let few = lines(4.0);
        assert_eq!(
            few,
            [
                "s (p95 < 200ms) not taken: no number of GPUs keeps the SLO: 240.0 ms at best, the bound is 200 ms",
                "s (p95 < 200ms) not taken: 1 GiB of memory are more than the 0 B of the GPU",
                "s (p95 < 200ms) taken: the cheapest that keeps it; together 1: 124.0 ms, 2: 131.2 ms, 3: 131.2 ms: \
                 the fewest within 5 % of the least",
                "s (p95 < 200ms) not taken: 4.00 an hour are more than the 1.00 of `plain`",
                "s (p95 < 200ms) not taken: `plain` costs as much, and takes 124.0 ms to its 145.9 ms",
                "s (p95 < 200ms) not taken: `plain` costs and takes as much, and is named first",
            ]
        );
        let many = &lines(1e6)[0];
        assert!(many.ends_with("more comes than 1000 of them finish"), "{many}");
    }

    #[test]
    fn a_price_and_an_slo_are_asked_for() {
        let told = serving(&[device("T4", 16, 0.0, 1.0)], &[profile()], 4.0).unwrap_err();
        assert!(told.message.contains("`T4` costs") && told.help.contains("0.35"), "{told}");
        let training = Profile { inference: None, ..profile() };
        let told = serving(&[device("T4", 16, 1.0, 1.0)], &[training], 4.0).unwrap_err();
        assert!(told.message.contains("SLO"), "{told}");
    }
}
