use super::*;
use crate::control::order::{Seen, Spent};

/// `north` has 100 and then 50 g, `south` 80 all the time; GPUs draw 100 or 300 W.
fn signals(caps: &str) -> Signals {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("signals.csv");
    let rows = "1970-01-01T00:00:00Z,north,100,\n1970-01-01T02:00:00Z,north,50,\n";
    let text = format!("hour,site,grams_per_kwh,cap_watts\n{rows}1970-01-01T00:00:00Z,south,80,{caps}\n");
    std::fs::write(&path, text).unwrap();
    Signals::read(&path, &["north".into(), "south".into()]).unwrap()
}

fn sites(busy: u32) -> Vec<SiteNow> {
    let site = |name: &str| SiteNow { name: name.into(), gpus: 4, busy, watts: [100.0, 300.0] };
    vec![site("north"), site("south")]
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hours")]
fn hours(hours: f64) -> Nanos {
    Nanos((hours * HOUR.0 as f64) as u64)
}

fn batch(gpu_hours: f64, done_by: f64) -> Batch {
    Batch { gpu_time: hours(gpu_hours), done_by: hours(done_by) }
}

fn told(quota: &Quota) -> Vec<(&str, u32)> {
    quota.sites.iter().map(|(site, count)| (site.as_str(), *count)).collect()
}

#[test]
fn work_waits_for_the_clean_hour_and_goes_where_it_is_clean_until_then_if_it_must() {
    let signals = signals("");
    let at = |now: f64, gpu_hours| quota(&batch(gpu_hours, 4.0), Nanos(0), hours(now), &sites(0), &signals);
    let few = at(0.5, 8.0);
    assert_eq!(told(&few), [], "four GPUs of the north for the last two hours are enough");
    assert!(few.why.contains("8.00 GPU-hours wait for a cleaner hour, 2 from this one"), "{}", few.why);
    assert_eq!(told(&at(2.0, 8.0)), [("north", 4)]);
    assert_eq!(told(&at(0.0, 20.0)), [("south", 4)], "and 12 of the south's 16");
    assert_eq!(
        told(&at(0.5, 24.0)),
        [("north", 4), ("south", 4)],
        "26 fit in: an hour and a half of the north too"
    );
}

#[test]
fn what_does_not_fit_in_before_its_time_or_is_late_goes_on_at_once_wherever_power_is() {
    let (signals, late) = (signals("900"), batch(40.0, 4.0));
    for (now, busy, south) in [(0.0, 0, 2), (5.0, 0, 2), (0.0, 1, 1), (0.0, 3, 0)] {
        let quota = quota(&late, Nanos(0), hours(now), &sites(busy), &signals);
        assert_eq!(told(&quota), [("north", 4), ("south", south)], "{now} {busy}");
        assert!(quota.why.contains("at once"), "{}", quota.why);
    }
    let done = quota(&late, hours(40.0), hours(5.0), &sites(0), &signals);
    assert_eq!((told(&done), done.why.as_str()), (vec![], "its work is done"));
    let little = quota(&batch(0.1, 1.0), Nanos(0), hours(0.5), &sites(0), &signals);
    assert_eq!(told(&little), [("south", 1)], "a part of a GPU takes a whole one");
}

#[test]
fn a_power_cap_is_kept_by_whole_gpus() {
    let signals = signals("999");
    let quota = quota(&batch(4.0, 1.0), Nanos(0), Nanos(0), &sites(0), &signals);
    assert_eq!(told(&quota), [("north", 2), ("south", 2)], "599 W of the south's are for two");
}

#[test]
fn what_is_done_is_counted_once_whoever_looks_and_however_often() {
    let fleet = Fleet {
        cluster: "c".into(),
        services: vec![
            crate::control::model::Service {
                batch: Some(batch(1.0, 1.0)),
                ..crate::control::policies::tests::service("job")
            },
            crate::control::policies::tests::service("web"),
        ],
        nodes: Vec::new(),
        sites: Vec::new(),
        stale_after: HOUR,
    };
    let report = |tenants: &[(&str, u64)]| {
        let seen = |ms: u64| Seen {
            budget: Default::default(),
            gpu: 0,
            runs: true,
            parked: false,
            spent: Spent { at_work: Nanos::from_millis(ms), ..Spent::default() },
        };
        let tenants = tenants.iter().map(|(name, ms)| ((*name).to_owned(), seen(*ms))).collect();
        Report { node: "n".into(), asked_at: Nanos(1), gpus: Vec::new(), tenants }
    };
    let mut done = Done::default();
    for (tenants, expected) in [
        (&[("c.job.1", 100), ("c.web.2", 900)][..], 100),
        (&[("c.job.1", 100), ("c.job.3", 50)], 150),
        (&[("c.job.3", 80)], 180),
        (&[("c.job.3", 10), ("d.job.1", 500)], 190),
    ] {
        let text = serde_json::to_string(&done).unwrap();
        done = serde_json::from_str(&text).unwrap(); // one that goes on after another
        done.look(&report(tenants), &fleet);
        assert_eq!(done.of("job"), Nanos::from_millis(expected));
    }
    assert_eq!(done.of("web"), Nanos(0));
}
