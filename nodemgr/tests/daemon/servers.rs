//! Promises judged by the pages of the servers that people run, as these export them: vLLM's time per output token, and
//! Triton's summaries and histograms, among all else that stands there.

use weir_nodemgr::control::TenantStats;
use weir_nodemgr::control::history::AskEvents;
use weir_nodemgr::control::schema::CreateTenant;
use weir_nodemgr::events::What;
use weir_nodemgr::latency::{Health, Source};

use crate::latency::Server;
use crate::stage::{Stage, wish};

/// vLLM's page, shortened: tokens that took up to 25 ms and up to 75 ms each. First tokens take seconds, which is not the promise.
fn vllm(fast: u32, slow: u32) -> String {
    let all = fast + slow;
    format!(
        r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} 3.0
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{engine="0",le="2.5",model_name="meta-llama/Llama-3.1-8B"}} 0.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="5.0",model_name="meta-llama/Llama-3.1-8B"}} {all}.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf",model_name="meta-llama/Llama-3.1-8B"}} {all}.0
# HELP vllm:time_per_output_token_seconds Histogram of time per output token in seconds.
# TYPE vllm:time_per_output_token_seconds histogram
vllm:time_per_output_token_seconds_bucket{{engine="0",le="0.01",model_name="meta-llama/Llama-3.1-8B"}} 0.0
vllm:time_per_output_token_seconds_bucket{{engine="0",le="0.025",model_name="meta-llama/Llama-3.1-8B"}} {fast}.0
vllm:time_per_output_token_seconds_bucket{{engine="0",le="0.05",model_name="meta-llama/Llama-3.1-8B"}} {fast}.0
vllm:time_per_output_token_seconds_bucket{{engine="0",le="0.075",model_name="meta-llama/Llama-3.1-8B"}} {all}.0
vllm:time_per_output_token_seconds_bucket{{engine="0",le="0.1",model_name="meta-llama/Llama-3.1-8B"}} {all}.0
vllm:time_per_output_token_seconds_bucket{{engine="0",le="+Inf",model_name="meta-llama/Llama-3.1-8B"}} {all}.0
vllm:time_per_output_token_seconds_count{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} {all}.0
vllm:time_per_output_token_seconds_sum{{engine="0",model_name="meta-llama/Llama-3.1-8B"}} 31.5
"#
    )
}

/// Triton's page with `--metrics-config summary_latencies=true,histogram_latencies=true`, shortened: requests whose p95 is so
/// many microseconds, and first responses up to 100 ms and up to 500 ms.
fn triton(p95_us: u32, fast: u32, slow: u32) -> String {
    let all = fast + slow;
    format!(
        r#"# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{{model="llm",version="1"}} {all}
# HELP nv_inference_request_duration_us Cumulative inference request duration in microseconds (includes cached requests)
# TYPE nv_inference_request_duration_us counter
nv_inference_request_duration_us{{model="llm",version="1"}} 1592143
# HELP nv_inference_first_response_histogram_ms Duration from request to first response in milliseconds
# TYPE nv_inference_first_response_histogram_ms histogram
nv_inference_first_response_histogram_ms_count{{model="llm",version="1"}} {all}
nv_inference_first_response_histogram_ms_sum{{model="llm",version="1"}} 10771
nv_inference_first_response_histogram_ms_bucket{{model="llm",version="1",le="100"}} {fast}
nv_inference_first_response_histogram_ms_bucket{{model="llm",version="1",le="500"}} {all}
nv_inference_first_response_histogram_ms_bucket{{model="llm",version="1",le="2000"}} {all}
nv_inference_first_response_histogram_ms_bucket{{model="llm",version="1",le="5000"}} {all}
nv_inference_first_response_histogram_ms_bucket{{model="llm",version="1",le="+Inf"}} {all}
# HELP nv_inference_request_summary_us Summary of inference request duration in microseconds (includes cached requests)
# TYPE nv_inference_request_summary_us summary
nv_inference_request_summary_us_count{{model="llm",version="1"}} {all}
nv_inference_request_summary_us_sum{{model="llm",version="1"}} 110223
nv_inference_request_summary_us{{model="llm",version="1",quantile="0.5"}} 653
nv_inference_request_summary_us{{model="llm",version="1",quantile="0.9"}} 698
nv_inference_request_summary_us{{model="llm",version="1",quantile="0.95"}} {p95_us}
nv_inference_request_summary_us{{model="llm",version="1",quantile="0.99"}} 9000000
nv_inference_request_summary_us{{model="llm",version="1",quantile="0.999"}} 9000000
"#
    )
}

/// A tenant that has promised something by a metric of a server.
struct Promised {
    stage: Stage,
    server: Server,
    _run: weir_nodemgr::control::Client,
}

impl Promised {
    fn new(slo: &str, metric: &str, first: String) -> Self {
        let (stage, server) = (Stage::new(), Server::start());
        server.say(first);
        let mut run = stage.client();
        let latency_from = Some(Source { url: server.url.clone(), metric: metric.into() });
        run.create(CreateTenant { slo: Some(slo.into()), latency_from, ..wish("serve", 60) }).unwrap();
        Self { stage, server, _run: run }
    }

    fn until_it_is(&self, wanted: Health) {
        let is = |t: Option<&TenantStats>| {
            t.and_then(|t| t.latency.as_ref()).is_some_and(|latency| latency.health == wanted)
        };
        self.stage.until("serve", "a look at the page", is);
    }

    /// Says another page, and waits until the promised quantile is in these bounds, in milliseconds.
    fn says(&self, page: String, recent_ms: std::ops::RangeInclusive<f64>) {
        self.server.say(page);
        let is = |t: Option<&TenantStats>| {
            let ns = t.and_then(|t| t.latency.as_ref()).and_then(|latency| latency.recent_ns);
            ns.is_some_and(|ns| recent_ms.contains(&(ns as f64 / 1e6)))
        };
        self.stage.until("serve", "its quantile", is);
    }

    /// What was told of the promise, in order.
    fn told(&self) -> Vec<&'static str> {
        let events = self.stage.client().events(AskEvents::default()).unwrap().events;
        let of = |what: &What| match what {
            What::SloMissed { .. } => Some("missed"),
            What::SloKept { .. } => Some("kept"),
            What::LatencySource { .. } => Some("source"),
            _ => None,
        };
        events.iter().filter_map(|event| of(&event.what)).collect()
    }

    /// Waits until just that was told.
    fn until_told(&self, wanted: &[&str]) {
        let start = std::time::Instant::now();
        while self.told() != wanted {
            assert!(start.elapsed() < crate::stage::DEADLINE, "{:?}, not {wanted:?}", self.told());
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_promise_of_so_much_for_each_token_is_judged_by_vllms_time_per_output_token() {
    let promised = Promised::new("p95 < 50ms", "vllm:time_per_output_token_seconds", vllm(1_000, 0));
    promised.until_it_is(Health::Idle);
    promised.says(vllm(1_100, 0), 24.2..=24.3); // 95 % of the way from 10 ms to 25 ms
    assert_eq!(promised.told(), [""; 0], "it is kept, however long first tokens take");
    promised.says(vllm(1_100, 900), 72.0..=75.0);
    promised.until_told(&["missed"]);
}

#[test]
fn a_promise_is_judged_by_tritons_first_responses() {
    let promised =
        Promised::new("p90 < 100ms", "nv_inference_first_response_histogram_ms", triton(700, 50, 0));
    promised.until_it_is(Health::Idle);
    promised.says(triton(700, 150, 0), 89.9..=90.1);
    assert_eq!(promised.told(), [""; 0]);
    promised.says(triton(700, 150, 900), 440.0..=460.0);
    promised.until_told(&["missed"]);
}

#[test]
fn a_promise_is_judged_by_the_quantile_that_triton_exports() {
    let promised = Promised::new("p95 < 1ms", "nv_inference_request_summary_us", triton(700, 50, 0));
    promised.says(triton(800, 60, 0), 0.8..=0.8);
    assert_eq!(promised.told(), [""; 0], "its p99 is another matter");
    promised.says(triton(1_500, 70, 0), 1.5..=1.5);
    promised.until_told(&["missed"]);
    promised.says(triton(900, 80, 0), 0.9..=0.9);
    promised.until_told(&["missed", "kept"]);
}
