use super::*;
use crate::registry::{Calls, Stand};
use weir_protocol::units::{Bandwidth, SmShare};

fn gpu() -> Device {
    Device { uuid: [7; 16], name: "GPU".into(), memory_total: Bytes::gib(8) }
}

fn budget(percent: u16) -> Budget {
    Budget {
        request: SmShare::percent(percent),
        limit: SmShare::FULL,
        memory: Bytes::gib(1),
        copy_limit: Bandwidth::UNLIMITED,
        slo: None,
    }
}

fn tenant(id: u64, name: &str) -> Record {
    Record::Tenant(Box::new(TenantRow {
        id,
        name: name.into(),
        owner: 0,
        class: ClassName::Primary,
        oversubscribe: false,
        budget: budget(30),
        budget_at_start: budget(30),
        configured: None,
        latency_from: None,
        park: Park::default(),
        made_at_ns: 1,
        registered: 0,
        cells: vec![CellRow { gpu: gpu().uuid_text(), pages: [1, 2, 3, 4], dead: Counters::default() }],
    }))
}

fn process(tenant: u64, id: u64, slot: usize) -> Record {
    let (build, driver) = (String::new(), String::new());
    Record::Process(ProcessRow { tenant, process: Process { id, pid: 9, birth: 5, slot, build, driver } })
}

fn of(records: &[Record]) -> Result<Remembered, String> {
    let all = [&[Record::begin(&[gpu()])], records].concat();
    Remembered::of(all, &super::super::boot()).map(Option::unwrap)
}

#[test]
fn what_ended_is_forgotten_and_what_changed_is_as_it_was_last() {
    let dead = Counters { launches: 3, ..Counters::default() };
    let mut parked = Park::default();
    (parked.stand, parked.calls) = (Stand::Parked, vec![Calls { process: 4, knocks: 1, calls: 17 }]);
    let records = [
        tenant(1, "a"),
        tenant(2, "b"),
        process(1, 3, 0),
        process(1, 4, 1),
        process(2, 5, 0),
        Record::Hold(Hold { tenant: 2, holder: Holder { id: 9, pid: 8, birth: 4 } }),
        Record::Budget { tenant: 1, budget: budget(20) },
        Record::Park { tenant: 1, park: parked.clone() },
        Record::Buried { process: 3, dead: vec![dead.clone()] },
        Record::Ended { tenant: 2 },
    ];
    let all = of(&records).unwrap();
    assert_eq!(all.tenants.iter().map(|row| row.id).collect::<Vec<_>>(), [1]);
    assert_eq!((all.tenants[0].budget, all.tenants[0].budget_at_start), (budget(20), budget(30)));
    assert_eq!(all.tenants[0].park, parked);
    assert_eq!((all.tenants[0].registered, &all.tenants[0].cells[0].dead), (2, &dead));
    assert_eq!(all.processes.iter().map(|row| row.process.id).collect::<Vec<_>>(), [4]);
    assert_eq!((all.holds.len(), all.last_id), (0, 9));
}

#[test]
fn a_journal_of_another_boot_says_nothing_and_one_of_another_version_is_refused() {
    let begin = |version, boot: &str| vec![Record::Begin { version, boot: boot.into(), devices: Vec::new() }];
    assert_eq!(Remembered::of(begin(VERSION, "yesterday"), "today"), Ok(None));
    let refused = Remembered::of(begin(VERSION + 1, "today"), "today").unwrap_err();
    assert!(refused.contains(&(VERSION + 1).to_string()), "{refused}");
    assert!(Remembered::of(Vec::new(), "today").is_err());
}

#[test]
fn what_cannot_be_is_refused() {
    let elsewhere = match tenant(1, "a") {
        Record::Tenant(row) => Record::Tenant(Box::new(TenantRow { cells: Vec::new(), ..*row })),
        other => other,
    };
    let cases: [&[Record]; 9] = [
        &[tenant(1, "../x")],
        &[tenant(1, "a"), tenant(1, "b")],
        &[tenant(1, "a"), tenant(2, "a")],
        &[process(1, 2, 0)],
        &[tenant(1, "a"), process(1, 2, PROCESS_SLOTS)],
        &[tenant(1, "a"), process(1, 2, 0), process(1, 2, 1)],
        &[tenant(1, "a"), Record::Buried { process: 2, dead: Vec::new() }],
        &[Record::begin(&[])],
        &[elsewhere],
    ];
    for records in cases {
        assert!(of(records).is_err(), "{records:?}");
    }
}
