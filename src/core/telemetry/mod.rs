//! Logs and metrics.
//!
//! [`install_log`] sets up tracing once for the process. [`Registry`] holds the metrics, and
//! renders them for a scrape; each room declares its metrics in a struct `Metrics`. Names follow
//! the rules of Prometheus: the prefix `kubefan_`, base units (seconds, bytes), and `_total` after
//! counters.

mod visible;

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::Collector;
#[cfg(target_os = "linux")]
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    TextEncoder,
};
use tracing::Subscriber;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, reload};
pub use visible::{visible, visible_json};

/// Histogram buckets in seconds, for durations from a cache hit to a slow upstream list.
pub const SECONDS_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// Libraries of kubefan with a lower log level: at level debug, h2 alone logs more than all of
/// kubefan. A name also matches longer names: `hyper` also matches `hyper_util`. All other targets
/// have the log's level, because a program that uses kubefan may have any.
const QUIET_LIBRARIES: [&str; 8] = [
    "h2",
    "hyper",
    "kube_client",
    "kube_runtime",
    "rustls",
    "tokio",
    "tower",
    "tungstenite",
];
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The panic message for an invalid or repeated declaration. Names and labels are constants, so any
/// test that declares the metric finds the mistake.
const DECLARED_ONCE: &str = "metrics are declared once, with valid names and labels";

/// The level and format of the log. Default is text at level info.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// The number of `-v` flags: 0 is level info, 1 is debug, more is trace (debug builds only).
    /// This is the level of kubefan and of the program that uses it. The libraries below kubefan,
    /// such as `hyper` and `kube-client`, log warnings, and from 2 on what has level info.
    pub verbosity: u8,
    /// True to log only warnings and errors; ignored if `verbosity` is not 0.
    pub is_quiet: bool,
    /// The format of each log line.
    pub format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text for people, coloured if standard error is a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Changes how much the installed log contains.
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, tracing_subscriber::Registry>,
}

/// Why [`install_log`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The environment variable `RUST_LOG` is not a valid log filter.
    #[error("RUST_LOG={value:?} is not a valid log filter, expected for example kubefan=debug")]
    Filter {
        /// The value of `RUST_LOG`.
        value: String,
        /// The parser's error.
        #[source]
        source: ParseError,
    },
    /// The process already has a tracing subscriber.
    #[error("the log is already set up")]
    AlreadyInstalled(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The error of parsing a [`LogFormat`] from a name other than `text` and `json`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown log format {0:?}, expected text or json")]
pub struct UnknownLogFormat(String);

/// All metrics of the process. Clones share them.
#[derive(Clone)]
pub struct Registry {
    metrics: prometheus::Registry,
    on_scrape: Arc<Mutex<Vec<OnScrape>>>,
}

type OnScrape = Arc<dyn Fn(&mut Samples) + Send + Sync>;

/// The samples of one scrape. The closures of [`Registry::on_scrape`] add samples to it.
#[derive(Default)]
pub struct Samples {
    families: BTreeMap<String, MetricFamily>,
}

// === Logs ===

/// Installs the tracing subscriber of the process, which writes to standard error.
///
/// The environment variable `RUST_LOG`, if set and not empty, replaces the verbosity.
///
/// # Errors
/// If `RUST_LOG` cannot be parsed, or a subscriber is already installed.
pub fn install_log(config: LogConfig) -> Result<LogHandle, LogError> {
    let is_coloured = std::io::stderr().is_terminal();
    let rust_log = std::env::var("RUST_LOG").ok();
    let (subscriber, handle) = subscriber(config, rust_log, std::io::stderr, is_coloured)?;
    let installed = subscriber.try_init();
    installed.map_err(|error| LogError::AlreadyInstalled(error.into()))?;
    Ok(handle)
}

/// Returns the tracing subscriber that writes the log to `writer`.
fn subscriber<W>(
    config: LogConfig,
    rust_log: Option<String>,
    writer: W,
    is_coloured: bool,
) -> Result<(impl Subscriber + Send + Sync, LogHandle), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(config, rust_log)?);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(is_coloured)
        .log_internal_errors(true);
    let lines = match config.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    Ok((subscriber, LogHandle { filter: handle }))
}

/// Returns the names and help texts in `descriptions`, which has a line for each metric, with the
/// values of the metrics.
pub(crate) fn described<T, const N: usize>(
    descriptions: &str,
    values: [T; N],
) -> impl Iterator<Item = ((&str, &str), T)> {
    let lines = descriptions.lines();
    let described = lines.filter_map(|line| line.split_once(": "));
    debug_assert_eq!(described.clone().count(), N);
    described.zip(values)
}

// === impl LogHandle ===

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogHandle")
    }
}

impl LogHandle {
    /// Sets the verbosity to that of `config` from now on. The format does not change.
    ///
    /// # Errors
    /// If `RUST_LOG` cannot be parsed.
    pub fn set_verbosity(&self, config: LogConfig) -> Result<(), LogError> {
        let filter = filter(config, std::env::var("RUST_LOG").ok())?;
        if self.filter.reload(filter).is_err() {
            tracing::warn!("the log's level cannot be changed");
        }
        Ok(())
    }
}

fn filter(config: LogConfig, rust_log: Option<String>) -> Result<EnvFilter, LogError> {
    let own = || {
        let (level, of_libraries) = match config.verbosity {
            0 if config.is_quiet => return "warn".to_owned(),
            0 => ("info", "warn"),
            1 => ("debug", "warn"),
            _ => ("trace", "info"),
        };
        let quiet = QUIET_LIBRARIES.map(|library| format!(",{library}={of_libraries}"));
        level.to_owned() + &quiet.concat()
    };
    let value = rust_log
        .filter(|value| !value.is_empty())
        .unwrap_or_else(own);
    EnvFilter::builder()
        .parse(&value)
        .map_err(|source| LogError::Filter { value, source })
}

impl FromStr for LogFormat {
    type Err = UnknownLogFormat;

    fn from_str(text: &str) -> Result<LogFormat, UnknownLogFormat> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(UnknownLogFormat(text.to_owned())),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        })
    }
}

// === impl Registry ===

/// The methods that declare metrics take the metric's name, a help text with the unit, and label
/// names. Declare each metric once, when the process starts.
///
/// # Panics
/// These methods panic if a name is malformed or was declared before.
#[allow(clippy::missing_panics_doc)] // documented above for all methods
impl Registry {
    /// Creates a registry with metrics of the process (CPU, memory, file descriptors; on Linux
    /// only) and `kubefan_build_info`.
    pub fn new() -> Registry {
        let registry = Registry {
            metrics: prometheus::Registry::new(),
            on_scrape: Arc::default(),
        };
        #[cfg(target_os = "linux")]
        registry
            .metrics
            .register(Box::new(ProcessCollector::for_self()))
            .expect(DECLARED_ONCE);
        let help = "Always 1; the label is the version of kubefan.";
        let build = registry.gauge_vec("kubefan_build_info", help, &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        registry
    }

    /// Declares a counter: a number that never decreases.
    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.declare(IntCounter::new(name, help).expect(DECLARED_ONCE))
    }

    /// Declares a counter with labels.
    pub fn counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.declare(IntCounterVec::new(Opts::new(name, help), labels).expect(DECLARED_ONCE))
    }

    /// Declares a gauge: a number that can increase and decrease.
    pub fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.declare(IntGauge::new(name, help).expect(DECLARED_ONCE))
    }

    /// Declares a gauge with labels.
    pub fn gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.declare(IntGaugeVec::new(Opts::new(name, help), labels).expect(DECLARED_ONCE))
    }

    /// Declares a histogram with `buckets` (ascending upper bounds), such as [`SECONDS_BUCKETS`].
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.declare(Histogram::with_opts(options).expect(DECLARED_ONCE))
    }

    /// Declares a histogram with labels.
    pub fn histogram_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.declare(HistogramVec::new(options, labels).expect(DECLARED_ONCE))
    }

    /// Calls `collect` at each scrape, for values that exist elsewhere, such as the size of a
    /// cache. `collect` must not block, must not use this registry, and must not use names that
    /// were declared by the other methods.
    pub fn on_scrape(&self, collect: impl Fn(&mut Samples) + Send + Sync + 'static) {
        self.on_scrape.lock().push(Arc::new(collect));
    }

    /// Returns the content type and body of a scrape: all metrics in the text format of Prometheus.
    pub fn render(&self) -> (&'static str, String) {
        let mut samples = Samples::default();
        // In the head of the loop, the lock would be held while the functions are called.
        let collectors = self.on_scrape.lock().clone();
        for collect in collectors {
            collect(&mut samples);
        }
        let mut families = self.metrics.gather();
        families.extend(samples.families.into_values());
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let body = TextEncoder::new()
            .encode_to_string(&families)
            .expect("every family has a name and a sample, and writing to memory cannot fail");
        (CONTENT_TYPE, body)
    }

    fn declare<C: Collector + Clone + 'static>(&self, metric: C) -> C {
        self.metrics
            .register(Box::new(metric.clone()))
            .expect(DECLARED_ONCE);
        metric
    }
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registry")
    }
}

// === impl Samples ===

impl Samples {
    /// Adds one sample of a gauge. Labels are pairs of name and value.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = labelled(labels);
        metric.set_gauge(gauge);
        self.add(name, help, MetricType::GAUGE, metric);
    }

    /// Adds one sample of a counter. Labels are pairs of name and value.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut metric = labelled(labels);
        metric.set_counter(counter);
        self.add(name, help, MetricType::COUNTER, metric);
    }

    fn add(&mut self, name: &str, help: &str, kind: MetricType, metric: Metric) {
        let family = self.families.entry(name.to_owned()).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help(help.to_owned());
            family.set_field_type(kind);
            family
        });
        family.mut_metric().push(metric);
    }
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.families.keys()).finish()
    }
}

fn labelled(labels: &[(&str, &str)]) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

#[cfg(test)]
mod tests;
