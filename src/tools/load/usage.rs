//! The CPU time and memory of the server, read from `/proc` or from the server's metrics.

use std::fs;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use kubefan_core::body::empty;
use kubefan_core::upstream::{Client, ClientConfig, Identity, collect};
use serde::Serialize;
use tokio::time::timeout;

use super::config::TargetServer;
use super::error::{Error, with_causes};
use super::target::request;

/// The number of clock ticks per second in `/proc`, which is 100 on every common architecture.
const TICKS_PER_SECOND: f64 = 100.0;
/// The timeout of one sample. It is short, so that an interrupted run ends soon.
const LIMIT: Duration = Duration::from_secs(5);
/// The maximum size of a metrics response, in bytes.
const METRICS_LIMIT: usize = 64 << 20;
/// The response header that identifies kubefan. kubefan forwards `/metrics`, so the answer would be
/// the API server's metrics, and the load test must not use this path.
const KUBEFAN_HEADER: &str = "x-kubefan-proof";

/// The CPU time and memory of the server at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// User and system time of the process since its start, in seconds.
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
}

/// The CPU time and memory that the server used during a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// User and system time in seconds, from the first write to the end of the drain.
    pub cpu_seconds: f64,
    /// User and system time in microseconds, divided by the number of delivered events; 0 without
    /// events.
    pub cpu_microseconds_per_event: f64,
    /// Resident memory in bytes before the watchers connected.
    pub resident_bytes_before: u64,
    /// Resident memory in bytes when all watchers were in sync, before the first write.
    pub resident_bytes_idle: u64,
    /// The largest resident memory in bytes of all samples, those of the resume phase included.
    pub resident_bytes_peak: u64,
}

/// The source of a server's CPU time and memory.
pub(super) enum UsageSource {
    Process(u32),
    Metrics {
        client: Client,
        path: String,
        identity: Identity,
    },
    /// No source is available; the text says why.
    None(String),
}

impl UsageSource {
    /// Finds the source for a server: the process or the metrics URL of `target`, else
    /// `/metrics` of the server unless the server is kubefan. `collection` is the path of a
    /// collection, which is listed to recognize kubefan. `flags` is the common beginning of the
    /// flags that choose the source.
    pub(super) async fn find(
        target: &TargetServer,
        client: &Client,
        collection: &str,
        flags: &str,
    ) -> Result<Self, Error> {
        if let Some(pid) = target.server_pid {
            let flag = format!("{flags}server-pid {pid}");
            return Self::Process(pid).checked(&flag).await;
        }
        if let Some(url) = &target.metrics_url {
            let uri: Result<http::Uri, _> = url.parse();
            let path = uri.ok().and_then(|uri| uri.path_and_query().cloned());
            let path = path.map(|path| path.to_string()).filter(|path| path != "/");
            let path = path.unwrap_or_else(|| "/metrics".to_owned());
            let config = ClientConfig {
                server: Some(url.trim_end_matches(path.as_str()).to_owned()),
                ..ClientConfig::default()
            };
            let source = Self::Metrics {
                client: Client::connect(config).await?,
                path,
                identity: Identity::Caller,
            };
            return source.checked(&format!("{flags}metrics-url {url}")).await;
        }
        if forwards_metrics(client, collection).await {
            return Ok(Self::None(format!(
                "kubefan's metrics are on its admin listener: give {flags}metrics-url or \
                 {flags}server-pid"
            )));
        }
        let source = Self::Metrics {
            client: client.clone(),
            path: "/metrics".to_owned(),
            identity: Identity::Kubefan,
        };
        Ok(match source.sample().await {
            Ok(_) => source,
            Err(problem) => Self::None(format!(
                "/metrics: {problem}; give {flags}server-pid or {flags}metrics-url"
            )),
        })
    }

    /// Returns the source, which `flag` names, if it has a sample.
    async fn checked(self, flag: &str) -> Result<Self, Error> {
        match self.sample().await {
            Ok(_) => Ok(self),
            Err(problem) => Err(Error::Refused(format!("{flag}: {problem}"))),
        }
    }

    pub(super) async fn sample(&self) -> Result<Sample, String> {
        let sampled = timeout(LIMIT, self.sample_now()).await;
        sampled.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}")))
    }

    async fn sample_now(&self) -> Result<Sample, String> {
        match self {
            Self::Process(pid) => sample_process(*pid),
            Self::Metrics {
                client,
                path,
                identity,
            } => {
                let request = request(Method::GET, path, "text/plain", empty());
                let request = request.map_err(|error| with_causes(&error))?;
                let sent = client.request_success(*identity, request).await;
                let answer = sent.map_err(|error| with_causes(&error))?;
                let body = collect(answer.into_body(), METRICS_LIMIT).await;
                let body = body.map_err(|error| with_causes(&error))?;
                parse_metrics(&String::from_utf8_lossy(&body))
            }
            Self::None(problem) => Err(problem.clone()),
        }
    }
}

/// Returns the present figures of all sources, in their order.
pub(super) async fn sample_all(sources: &[UsageSource]) -> Vec<Result<Sample, String>> {
    join_all(sources.iter().map(UsageSource::sample)).await
}

/// Returns the user and system time of this process since its start, in seconds;
/// 0 if `/proc` is not readable.
pub(super) fn own_cpu_seconds() -> f64 {
    sample_process(std::process::id()).map_or(0.0, |sample| sample.cpu_seconds)
}

async fn forwards_metrics(client: &Client, collection: &str) -> bool {
    let path = format!("{collection}?limit=1");
    let Ok(request) = request(Method::GET, &path, "application/json", empty()) else {
        return false;
    };
    let answer = timeout(LIMIT, client.request_success(Identity::Kubefan, request)).await;
    // If this list fails, the watches fail too and report the problem.
    answer.is_ok_and(|answer| {
        answer.is_ok_and(|answer| answer.headers().contains_key(KUBEFAN_HEADER))
    })
}

fn sample_process(pid: u32) -> Result<Sample, String> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))
    };
    let cpu_seconds = cpu_of(&read("stat")?).ok_or("its /proc stat file is malformed")?;
    let resident_bytes = resident_of(&read("status")?).ok_or("its status has no VmRSS")?;
    Ok(Sample {
        cpu_seconds,
        resident_bytes,
    })
}

/// Reads the CPU time in seconds from fields 14 and 15 of `/proc/<pid>/stat`. Field 2 is a name in
/// parentheses that may contain spaces, so the search starts after the last parenthesis.
fn cpu_of(stat: &str) -> Option<f64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

fn parse_metrics(text: &str) -> Result<Sample, String> {
    let value = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.and_then(|value| value.trim().parse::<f64>().ok());
        value.ok_or_else(|| format!("the metrics have no {name}"))
    };
    Ok(Sample {
        cpu_seconds: value("process_cpu_seconds_total")?,
        // Prometheus encodes all values as floats; a size in bytes has no fraction.
        resident_bytes: value("process_resident_memory_bytes")? as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let stat = "12 (a (b) c) S 1 12 12 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 100 1 2";
        assert_eq!(cpu_of(stat), Some(3.0));
        assert_eq!(cpu_of("12 (a) S 1"), None);
        let status = "Name:\ta\nVmPeak:\t 9 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!(resident_of(status), Some(2 << 20));
        let own = sample_process(std::process::id()).expect("this process");
        assert!(own.resident_bytes > 1 << 20, "{own:?}");
        let missing_process = sample_process(u32::MAX).expect_err("no such process");
        assert!(
            missing_process.contains("/proc/4294967295/stat"),
            "{missing_process}"
        );
    }

    #[test]
    fn metrics_are_read() {
        let text = "# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total 1.25e+02\n\
                    process_cpu_seconds_total_other 1\nprocess_resident_memory_bytes 1.048576e+06\n";
        let sample = parse_metrics(text).expect("both metrics");
        assert_eq!(
            (sample.cpu_seconds, sample.resident_bytes),
            (125.0, 1 << 20)
        );
        let error = parse_metrics("").expect_err("no metrics");
        assert_eq!(error, "the metrics have no process_cpu_seconds_total");
    }
}
