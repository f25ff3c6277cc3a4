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
    let site = |name: &str| SiteNow { name: name.into(), gpus: 4, others: 0, busy, watts: [100.0, 300.0] };
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
    let at =
        |now: f64, gpu_hours| quota(&batch(gpu_hours, 4.0), Nanos(0), 100, hours(now), &sites(0), &signals);
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
        let quota = quota(&late, Nanos(0), 100, hours(now), &sites(busy), &signals);
        assert_eq!(told(&quota), [("north", 4), ("south", south)], "{now} {busy}");
        assert!(quota.why.contains("at once"), "{}", quota.why);
    }
    let done = quota(&late, hours(39.999_99), 100, hours(5.0), &sites(0), &signals);
    assert_eq!((told(&done), done.why.as_str()), (vec![], "its work is done"));
    assert!(done.is_done);
    let little = quota(&batch(0.1, 1.0), Nanos(0), 100, hours(0.5), &sites(0), &signals);
    assert_eq!(told(&little), [("south", 1)], "a part of a GPU takes a whole one");
}

#[test]
fn a_power_cap_is_kept_by_whole_gpus() {
    let signals = signals("999");
    let quota = quota(&batch(4.0, 1.0), Nanos(0), 100, Nanos(0), &sites(0), &signals);
    assert_eq!(told(&quota), [("north", 2), ("south", 2)], "599 W of the south's are for two");
}

#[test]
fn the_ceiling_is_part_of_the_plan() {
    let signals = signals("");
    let at = |most| quota(&batch(8.0, 4.0), Nanos(0), most, Nanos(0), &sites(0), &signals);
    assert_eq!(told(&at(4)), [], "four of the north for two clean hours");
    assert_eq!(told(&at(3)), [("south", 2)], "three would do six of the eight: the cleaner of both begins");
    assert_eq!(told(&at(1)), [("north", 0), ("south", 1)]);
    assert!(at(1).why.contains("at once"), "one never does it: {}", at(1).why);
}

#[test]
fn what_was_begun_in_an_hour_goes_on_in_it_as_far_as_caps_and_ceiling_allow() {
    let signals = signals("");
    let before: BTreeMap<_, _> = [("north".to_owned(), 3), ("south".to_owned(), 2)].into();
    let keep = |gpu_hours, most, busy| {
        let (batch, sites) = (batch(gpu_hours, 3.0), sites(busy));
        let fresh = quota(&batch, Nanos(0), most, hours(2.0), &sites, &signals);
        kept(fresh, &before, most, hours(2.0), &sites, &signals)
    };
    assert_eq!(told(&keep(2.5, 100, 0)), [("north", 3), ("south", 2)]);
    assert_eq!(told(&keep(1.5, 4, 0)), [("north", 3), ("south", 1)]);
    assert_eq!(told(&keep(4.0, 4, 0)), [("north", 4), ("south", 0)], "what the plan wants goes first");
    let capped = super::tests::signals("1500");
    let (batch, sites) = (batch(2.5, 3.0), sites(4));
    let fresh = quota(&batch, Nanos(0), 100, hours(2.0), &sites, &capped);
    let south = kept(fresh, &before, 100, hours(2.0), &sites, &capped).sites["south"];
    assert_eq!(south, 1, "1,500 W, less 400 at rest and 800 of others, are for one more");
}

#[test]
fn gpus_that_cannot_be_had_draw_power_all_the_same() {
    let signals = signals("1100");
    let of = |others| {
        let mut sites = sites(0);
        sites[1].others = others;
        told(&quota(&batch(40.0, 4.0), Nanos(0), 100, Nanos(0), &sites, &signals))[1].1
    };
    assert_eq!([0, 2, 4, 9].map(of), [3, 2, 1, 0]);
}

#[test]
fn what_is_done_is_counted_once_whoever_looks_and_however_often() {
    let job = batch(1.0, 1.0);
    let work_of =
        |name: &str| (name.starts_with("c.job.") && name != "c.job.9").then(|| ("job".to_owned(), job));
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
        (&[("c.job.3", 10), ("c.job.9", 500)], 190),
    ] {
        let text = serde_json::to_string(&done).unwrap();
        done = serde_json::from_str(&text).unwrap(); // one that goes on after another
        done.look(&report(tenants), work_of);
        assert_eq!(done.of("job", &job), Nanos::from_millis(expected));
    }
    assert_eq!(done.of("web", &job), Nanos(0));
    assert_eq!(done.of("job", &batch(1.0, 2.0)), Nanos(0), "by another time it is other work");
}
