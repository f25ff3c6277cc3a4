//! The cluster of the simulation, and single scenes that say what a rule is.

use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use crate::control::model::{Budget, Fleet, Node, ReadyWhen, Service, WhenIdle};

/// A service of this name and share.
pub fn service(name: &str, percent: u16, floor: u32, when_idle: WhenIdle) -> Service {
    let request = SmShare::percent(percent);
    Service {
        name: name.into(),
        command: vec!["serve".into(), "{port}".into()],
        env: Default::default(),
        budget: Budget { request, limit: SmShare::FULL, memory: Bytes::gib(4) },
        shares: [SmShare::percent(percent / 2), SmShare::percent(percent * 3 / 2)],
        class: ClassName::Latency,
        slo: None,
        floor,
        ceiling: 4,
        concurrency: 2,
        queue: 8,
        queue_deadline: Nanos::from_secs(20),
        answer_deadline: Nanos::from_secs(5),
        cold_start: Nanos::from_secs(3),
        ready: ReadyWhen::Listens,
        when_idle,
        backbone: None,
        work: None,
        profile: None,
        batch: None,
    }
}

/// Three nodes of two GPUs and three services: one that stays, one that ends and one that sleeps when nobody asks.
pub fn fleet() -> Fleet {
    let node =
        |name: &str| Node { name: name.into(), address: name.into(), ports: [20_000, 20_063], site: None };
    Fleet {
        cluster: "sim".into(),
        services: vec![
            service("web", 30, 1, WhenIdle::Stop),
            service("llm", 60, 0, WhenIdle::Stop),
            service("idle", 20, 0, WhenIdle::Park),
        ],
        nodes: ["a", "b", "c"].map(node).to_vec(),
        sites: Vec::new(),
        stale_after: Nanos::from_secs(5),
    }
}
