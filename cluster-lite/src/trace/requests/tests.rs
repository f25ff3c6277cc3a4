//! What is read, what is refused, and whether what is drawn is as it says.

use std::path::{Path, PathBuf};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weir_protocol::units::Nanos;

use super::text::Text;
use super::{Arrivals, Recorded, Shape, Size, Sizes, Trace, alibaba, azure, draw, mooncake, read};
use crate::fault::Fault;

/// A file of the shared data; nothing, said aloud, where it is absent.
fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("WEIR_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let path = root.join(name);
    if !path.exists() {
        eprintln!("skipped: `{}` is not there; set WEIR_DATA", path.display());
        return None;
    }
    Some(path)
}

fn requests(name: &str) -> Option<Trace> {
    match read(&shared(name)?).unwrap() {
        Recorded::Requests(trace) => Some(trace),
        Recorded::Rates(_) => panic!("{name} has requests"),
    }
}

#[test]
fn azure_has_its_19366_requests_in_an_hour() {
    let Some(trace) = requests("azure-llm-2023/AzureLLMInferenceTrace_conv.csv") else { return };
    assert_eq!(trace.requests.len(), 19_366);
    assert_eq!(trace.requests[0].size, Size::Tokens { prompt: 374, answer: 44 });
    assert!(trace.length() > Nanos::from_secs(3400) && trace.length() < Nanos::from_secs(3660));
}

#[test]
fn mooncake_has_its_12031_requests() {
    let Some(trace) = requests("mooncake/conversation_trace.jsonl") else { return };
    assert_eq!(trace.requests.len(), 12_031);
}

#[test]
fn alibaba_has_its_requests_rates_and_load_times() {
    let Some(trace) = requests("alibaba-genai-2026/lora_request_trace.tar.gz") else { return };
    assert_eq!((trace.requests.len(), trace.left_out), (26_392, 431));
    let Some(path) = shared("alibaba-genai-2026/qps.tar.gz") else { return };
    let Recorded::Rates(rates) = read(&path).unwrap() else { panic!("rates") };
    assert_eq!(rates.len(), 1023);
    let Some(path) = shared("alibaba-genai-2026/basemodel_update_latency_anon.tar.gz") else { return };
    let mut loads = alibaba::samples(&path).unwrap();
    loads.sort_unstable_by(f64::total_cmp);
    assert_eq!((loads.len(), loads[loads.len() / 2]), (7531, 22_718.0));
}

fn azure_fault(rows: &str) -> Fault {
    azure::read(&Text::of("a.csv", &format!("{}\n{rows}", azure::HEAD))).unwrap_err()
}

#[test]
fn what_no_azure_trace_has_is_refused_with_its_line() {
    let good = "2023-11-16 18:15:46.68,374,44\n";
    for (rows, line, message) in [
        ("yesterday,1,1", 2, "`yesterday` is no date and time"),
        ("2023-11-16 18:15:46,-1,1", 2, "`-1` is no number of context tokens"),
        ("2023-11-16 18:15:46,1,NaN", 2, "`NaN` is no number of generated tokens"),
        ("2023-11-16 18:15:46,1,99999999", 2, "`99999999` is no number of generated tokens"),
        ("2023-11-16 18:15:46,1", 2, "a row of 2 columns under a heading of 3: is the file cut off?"),
    ] {
        let fault = azure_fault(rows);
        assert_eq!(fault.message, message);
        assert_eq!(fault.at, Some(format!("a.csv:{line}")));
        assert_eq!(azure_fault(&format!("{good}{rows}")).at, Some(format!("a.csv:{}", line + 1)));
    }
    let backwards = azure_fault(&format!("{good}2023-11-16 18:15:47,1,1\n2023-11-16 18:15:46.9,1,1"));
    assert_eq!(backwards.at.as_deref(), Some("a.csv:4"));
    assert!(backwards.message.contains("backwards"));
}

#[test]
fn what_no_mooncake_line_has_is_refused_with_its_line() {
    let good = r#"{"timestamp": 5, "input_length": 1, "output_length": 2, "hash_ids": []}"#;
    let fault = |line: &str| mooncake::read(&Text::of("m.jsonl", &format!("{good}\n{line}"))).unwrap_err();
    for (line, message) in [
        (r#"{"timestamp": 5, "input_le"#, "cut off"),
        (r#"{"timestamp": 6, "input_length": -1, "output_length": 2, "hash_ids": []}"#, "-1"),
        (
            r#"{"timestamp": 6, "input_length": 1, "output_length": 2, "hash_ids": [], "x": 1}"#,
            "unknown field",
        ),
        (
            r#"{"timestamp": 6, "timestamp": 6, "input_length": 1, "output_length": 2, "hash_ids": []}"#,
            "duplicate",
        ),
        (r#"{"timestamp": 4, "input_length": 1, "output_length": 2, "hash_ids": []}"#, "backwards"),
        (
            r#"{"timestamp": 18446744073709551615, "input_length": 1, "output_length": 2, "hash_ids": []}"#,
            "no time",
        ),
    ] {
        let fault = fault(line);
        assert!(fault.message.contains(message), "{fault}");
        assert_eq!(fault.at.as_deref(), Some("m.jsonl:2"));
    }
}

#[test]
fn what_no_alibaba_trace_has_is_refused_with_its_line() {
    let rates = |text: &str| alibaba::rates(&Text::of("q.csv", text)).unwrap_err();
    let head = "timestamp_anon,value,container_ip,request_type";
    let fault = rates(&format!("{head}\n1.0,nan,,API Requests"));
    assert_eq!((fault.message.as_str(), fault.at.as_deref()), ("`nan` is no rate", Some("q.csv:2")));
    let twice = rates("timestamp_anon,value,value,request_type\n");
    assert_eq!(twice.message, "there are two columns `value`");
    let row = "2024-11-15 16:57:50,TXT_2_IMG,LOST,32.0,G0000,63.0,26.0,1.0,30.0,M0000,0";
    let fault = alibaba::requests(&Text::of("l.csv", &format!("{}\n{row}", alibaba::LORA_HEAD))).unwrap_err();
    assert_eq!((fault.message.as_str(), fault.at.as_deref()), ("`LOST` is no status", Some("l.csv:2")));
}

#[test]
fn a_file_that_is_cut_off_empty_or_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read(&path).unwrap_err()
    };
    assert!(write("empty.csv", b"").message.contains("empty"));
    assert!(write("other.csv", b"a,b\n1,2\n").message.contains("`a,b` begins no trace"));
    assert!(write("binary.csv", &[b'a', b'\n', 0xff]).at.unwrap().ends_with("binary.csv:2"));
    assert!(write("noise.tar.gz", b"no archive").message.contains("cannot be read"));
    assert!(read(&dir.path().join("absent.csv")).unwrap_err().message.contains("cannot be read"));
    assert!(read(dir.path()).unwrap_err().message.contains("cannot be read"));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let rows: String = (0..5000).map(|n| format!("{n}.0,0.{n},,API Requests\n")).collect();
    let text = format!("timestamp_anon,value,container_ip,request_type\n{rows}");
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_cksum();
    let mut archive = tar::Builder::new(&mut packed);
    archive.append_data(&mut header, "q.csv", text.as_bytes()).unwrap();
    archive.finish().unwrap();
    drop(archive);
    let whole = packed.finish().unwrap();
    let path = dir.path().join("whole.tar.gz");
    std::fs::write(&path, &whole).unwrap();
    assert!(matches!(read(&path), Ok(Recorded::Rates(_))), "the whole one is read");
    assert!(write("half.tar.gz", &whole[..whole.len() / 2]).message.contains("cannot be read"));
}

fn random() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(7)
}

#[test]
fn the_shapes_have_the_published_lengths_means_and_peaks_papers_1_6() {
    for (shape, length, mean, most) in [
        (Shape::Bursty, 858, 5.69, 14.3),
        (Shape::Periodic, 1007, 3.10, 13.8),
        (Shape::Sporadic, 1007, 0.15, 4.1),
    ] {
        let rates = shape.rates(0, &mut random());
        assert_eq!(rates.len(), length);
        #[allow(clippy::cast_precision_loss, reason = "a thousand seconds")]
        let found = rates.iter().sum::<f64>() / length as f64;
        assert!((found / mean - 1.0).abs() < 0.02, "{shape:?}: {found}");
        assert!(rates.iter().all(|rate| (0.0..=most + 1e-9).contains(rate)));
    }
    let empty = Shape::Sporadic.rates(0, &mut random()).iter().filter(|rate| **rate == 0.0).count();
    assert_eq!(empty, 671);
}

#[test]
fn gaps_have_the_mean_and_the_variation_that_were_asked_for() {
    for cv in [0.5, 1.0, 4.0] {
        let arrivals = Arrivals::Gamma { seconds: 20_000, rate: 5.0, cv };
        let trace = draw("gamma", arrivals, Sizes::Equal, &mut random());
        let times: Vec<_> = trace.requests.iter().map(|request| request.at).collect();
        #[allow(clippy::cast_precision_loss, reason = "some seconds")]
        let gaps: Vec<_> = times.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64 / 1e9).collect();
        #[allow(clippy::cast_precision_loss, reason = "a hundred thousand")]
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count).sqrt();
        assert!((mean / 0.2 - 1.0).abs() < 0.05, "cv {cv}: mean {mean}");
        assert!((deviation / mean / cv - 1.0).abs() < 0.05, "cv {cv}: {}", deviation / mean);
    }
}

#[test]
fn the_same_seed_draws_the_same_trace() {
    let arrivals = Arrivals::Shaped { shape: Shape::Bursty, seconds: 0, scale: 2.0 };
    let once = draw("bursty", arrivals, Sizes::Pareto(1.5), &mut random());
    assert_eq!(once, draw("bursty", arrivals, Sizes::Pareto(1.5), &mut random()));
    assert!(once.requests.is_sorted_by_key(|request| request.at));
}

#[test]
fn the_busiest_stretch_has_most_requests_and_begins_at_0() {
    let at = |second| super::Request { at: Nanos::from_secs(second), size: Size::Relative(1.0) };
    let trace = Trace { requests: [0, 50, 51, 52, 90].map(at).to_vec(), ..Trace::default() };
    let busiest = trace.busiest(Nanos::from_secs(5));
    assert_eq!(busiest.requests, [0, 1, 2].map(at));
}
