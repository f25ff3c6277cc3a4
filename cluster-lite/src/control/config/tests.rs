//! Each mistake has its line, and says what to do.

use super::*;

const GOOD: &str = r#"name = "lab"
dir = "state"
[[node]]
name = "here"
dir = "/run/weir"
gpus = 1
gpu_memory = "16GiB"
[[service]]
name = "web"
command = ["serve", "--port", "{port}"]
request = "30%"
memory = "2GiB"
"#;

fn parse(text: &str) -> Result<Config, Fault> {
    Config::parse(text, Path::new("c.toml"))
}

#[test]
fn a_short_file_is_enough() {
    let config = parse(GOOD).unwrap();
    let service = &config.fleet.services[0];
    assert_eq!(service.budget.request, SmShare::percent(30));
    assert_eq!((service.floor, service.ceiling), (0, 4));
    assert_eq!(config.reach[0].manager, ManagerAt::Socket("/run/weir".into()));
    let beside = Config::parse(GOOD, Path::new("/etc/weir/c.toml")).unwrap();
    assert_eq!(
        beside.reach[0].instances,
        Path::new("/etc/weir/state/instances/here"),
        "wherever it is started"
    );
    assert_eq!(config.fleet.nodes[0].ports, [20_000, 20_999]);
}

/// What is replaced in a good file by what, the line that is named, and parts of the message and of the help.
const MISTAKES: &[(&str, &str, usize, &str, &str)] = &[
    ("request = \"30%\"", "reqest = \"30%\"", 11, "unknown key `reqest`", "request"),
    ("request = \"30%\"", "request = \"130%\"", 11, "130%", "%"),
    ("memory = \"2GiB\"", "memory = \"20GiB\"", 12, "no node can hold", "16 GiB"),
    ("memory = \"2GiB\"", "memory = \"40Q\"", 12, "40Q", "GiB"),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\nfloor = 5", 8, "exclude each other", "floor"),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\nlimit = \"20%\"", 13, "below request", "limit"),
    ("\"{port}\"", "\"80\"", 10, "never told its port", "{port}"),
    ("name = \"web\"", "name = \"Web\"", 9, "cannot be", "small letters"),
    ("name = \"web\"", "name = \"metrics\"", 9, "by the gateway itself", "another name"),
    ("name = \"lab\"", "name = \"lab\"\nplace = \"fdg\"", 2, "no policy `fdg`", "fgd"),
    (
        "name = \"lab\"",
        "name = \"lab\"\nplace = \"fgd+bestfit\"",
        2,
        "`bestfit` the GPU with the least",
        "pwr",
    ),
    ("name = \"lab\"", "name = \"lab\"\nceiling = 0.5", 2, "0.5 on slowdowns", "1.5"),
    ("name = \"lab\"", "name = \"lab\"\nceiling = nan", 2, "on slowdowns", "1.5"),
    ("name = \"lab\"", "name = \"lab\"\nscale = \"wier\"", 2, "`wier`", "weir"),
    ("dir = \"/run/weir\"", "", 4, "nothing says where", "dir"),
    ("dir = \"/run/weir\"", "web = \"http://x\"", 5, "no token", "token_file"),
    ("gpus = 1", "ports = \"9-1\"", 6, "range of ports", "20000-20999"),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\nslo = \"p95 200ms\"", 13, "no SLO", "p95 < 200ms"),
    (
        "memory = \"2GiB\"",
        "memory = \"2GiB\"\nclass = \"primary\"\nwhen_idle = \"park\"",
        14,
        "never parked",
        "latency",
    ),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\nbackbone = \"llama\"", 13, "has no memory", "13GiB"),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\nbackbone = \"=1GiB\"", 13, "no name", "13GiB"),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\nbackbone = \"b=15GiB\"", 12, "no node can hold", "16 GiB"),
    (
        "memory = \"2GiB\"",
        "memory = \"2GiB\"\nbackbone = \"b=1GiB\"\nwhen_idle = \"park\"",
        13,
        "go to the host",
        "leave the backbone out",
    ),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\nwork_header = \"a b\"", 13, "`a b` is no name", "X-GPU-Ms"),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\nwork_us_per_byte = 0", 13, "work_us_per_byte", "0.001"),
    (
        "memory = \"2GiB\"",
        "memory = \"2GiB\"\nwork_header = \"x\"\nwork_us_per_byte = 2.0",
        14,
        "exclude each other",
        "leave one",
    ),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\nready = \"runs\"", 13, "no floor", "floor"),
    ("memory = \"2GiB\"", "memory = \"2GiB\"\ncold_start_s = -1.0", 13, "-1", "seconds"),
];

#[test]
fn each_mistake_has_its_line() {
    for (old, new, line, message, help) in MISTAKES {
        let fault = parse(&GOOD.replace(old, new)).expect_err(new);
        assert_eq!(fault.at.as_deref(), Some(format!("c.toml:{line}").as_str()), "{new}: {fault}");
        assert!(fault.message.contains(message) && fault.help.contains(help), "{new}: {fault}");
        assert_eq!(fault.exit, CONFIG);
    }
}

#[test]
fn weights_of_one_name_have_one_size() {
    let second = |size: &str| {
        let first = GOOD.replace("memory = \"2GiB\"", "memory = \"2GiB\"\nbackbone = \"b=1GiB\"");
        let row =
            "[[service]]\nname = \"two\"\ncommand = [\"x\", \"{port}\"]\nrequest = \"5%\"\nmemory = \"1GiB\"";
        parse(&format!("{first}{row}\nbackbone = \"b={size}\"\n"))
    };
    assert_eq!(second("1GiB").unwrap().fleet.services[1].with_backbone().memory, Bytes::gib(2));
    let fault = second("3GiB").unwrap_err();
    assert_eq!(fault.at.as_deref(), Some("c.toml:19"), "{fault}");
    assert!(fault.message.contains("3 GiB for `two` and 1 GiB for `web`"), "{fault}");
}

#[test]
fn two_of_one_name_are_refused() {
    let twice = format!("{GOOD}[[service]]\nname = \"web\"\ncommand = [\"x\"]\n");
    assert!(parse(&twice).unwrap_err().message.contains("two services named `web`"));
}

/// Best-effort work at one site; the lines of the service begin at 14.
const FOLLOWS: &str = r#"name = "lab"
dir = "state"
signals = "signals.csv"
[[site]]
name = "north"
idle_watts = 50
busy_watts = 400
[[node]]
name = "here"
dir = "/run/weir"
site = "north"
[[service]]
name = "work"
command = ["work"]
class = "filler"
ready = "runs"
request = "0%"
memory = "2GiB"
gpu_hours = 1.5
done_by = "1970-01-02T06:00:00Z"
"#;

#[test]
fn what_follows_signals_says_how_much_it_is_by_when_and_where_its_nodes_stand() {
    let config = Config::parse(FOLLOWS, Path::new("/etc/c.toml")).unwrap();
    let batch = config.fleet.services[0].batch.unwrap();
    assert_eq!([batch.gpu_time, batch.done_by], [90 * 60, 30 * 3_600].map(Nanos::from_secs));
    assert_eq!(config.signals.as_deref(), Some(Path::new("/etc/signals.csv")));
    assert_eq!(config.fleet.site_of("here"), Some("north"));
    for (old, new, line, message, help) in [
        ("gpu_hours = 1.5\n", "", 19, "belong together", "how much"),
        ("done_by = \"1970-01-02T06:00:00Z\"\n", "", 19, "belong together", "by when"),
        ("gpu_hours = 1.5", "gpu_hours = -1.0", 19, "gpu_hours is -1", "hours of a GPU"),
        ("06:00:00Z", "06:30:00Z", 20, "no whole hour", "06:00:00Z"),
        ("1970-01-02T06:00:00Z", "tomorrow", 20, "no whole hour", "whole hour"),
        ("class = \"filler\"", "class = \"latency\"", 17, "guarantees nothing", "filler"),
        ("ready = \"runs\"", "ready = \"port\"", 19, "no best-effort work", "class = \"filler\""),
        ("memory = \"2GiB\"", "memory = \"2GiB\"\nfloor = 1", 20, "no best-effort work", "no floor"),
        ("signals = \"signals.csv\"\n", "", 18, "there are none", "signals.csv"),
        ("site = \"north\"", "site = \"nroth\"", 11, "`nroth`, which is no site", "[[site]]"),
        ("site = \"north\"\n", "", 8, "`nowhere`", "[[site]]"),
        ("busy_watts = 400", "busy_watts = 50", 7, "50 W idle and 50 W busy", "busy more"),
        ("idle_watts = 50", "idle_watts = -1", 7, "-1 W idle", "watts"),
    ] {
        let fault = parse(&FOLLOWS.replace(old, new)).expect_err(new);
        assert_eq!(fault.at.as_deref(), Some(format!("c.toml:{line}").as_str()), "{new}: {fault}");
        assert!(fault.message.contains(message) && fault.help.contains(help), "{new}: {fault}");
    }
}
