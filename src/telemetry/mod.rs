//! Logs and metrics.
//!
//! [`install_log`] sets up tracing once; [`Registry`] holds the metrics, which each room declares in
//! a `Metrics` struct of its own, and renders them for a scrape. Names follow Prometheus' rules:
//! `kubefan_` first, base units (seconds, bytes), `_total` behind counters.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::Histogram;
use prometheus::HistogramOpts;
use prometheus::HistogramVec;
use prometheus::IntCounter;
use prometheus::IntCounterVec;
use prometheus::IntGauge;
use prometheus::IntGaugeVec;
use prometheus::Opts;
use prometheus::TextEncoder;
use prometheus::core::Collector;
#[cfg(target_os = "linux")]
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::Counter;
use prometheus::proto::Gauge;
use prometheus::proto::LabelPair;
use prometheus::proto::Metric;
use prometheus::proto::MetricFamily;
use prometheus::proto::MetricType;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Buckets, in seconds, for anything from a cache hit to a slow upstream list.
pub const SECONDS_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A metric's name and labels are constants of a room, so a fault is found by any test of it.
const DECLARED_ONCE: &str = "metrics are declared once, with valid names and labels";

/// What is logged, and how. Default is text at level info.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// How often `-v` was given: 0 is info, 1 debug, more is trace (debug builds only).
    pub verbosity: u8,
    /// Without `-v`, only warnings.
    pub is_quiet: bool,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The variable `RUST_LOG` has a directive that can't be understood.
    #[error("RUST_LOG={value:?} is no log filter")]
    Filter {
        /// Its value.
        value: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// A subscriber was installed before.
    #[error("the log is already set up")]
    AlreadyInstalled(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The text is neither `text` nor `json`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown log format {0:?}, expected text or json")]
pub struct UnknownLogFormat(String);

/// All metrics of the process; clones share them.
#[derive(Clone)]
pub struct Registry {
    metrics: prometheus::Registry,
    on_scrape: Arc<Mutex<Vec<OnScrape>>>,
}

type OnScrape = Arc<dyn Fn(&mut Samples) + Send + Sync>;

/// What [`Registry::on_scrape`] closures add their samples to.
#[derive(Default)]
pub struct Samples {
    families: BTreeMap<String, MetricFamily>,
}

// === Logs ===

/// Installs the process' subscriber; it writes to standard error.
///
/// `RUST_LOG`, if set, replaces what the verbosity says.
///
/// # Errors
/// When `RUST_LOG` can't be parsed, or a subscriber is already there.
pub fn install_log(config: LogConfig) -> Result<(), LogError> {
    let filter = filter(config, std::env::var("RUST_LOG").ok())?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match config.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    }
    .map_err(LogError::AlreadyInstalled)
}

fn filter(config: LogConfig, rust_log: Option<String>) -> Result<EnvFilter, LogError> {
    // Libraries speak up only with warnings: at debug, h2 alone would drown ours.
    let own = match config.verbosity {
        0 if config.is_quiet => "warn",
        0 => "warn,kubefan=info",
        1 => "warn,kubefan=debug",
        _ => "info,kubefan=trace",
    };
    let value = rust_log
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| own.to_owned());
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

/// The declaring methods take a name, a help text that says the unit, and label names.
///
/// # Panics
/// They panic when a name is malformed or was declared before: declare each metric once, when the
/// process starts.
#[allow(clippy::missing_panics_doc)] // said above for all of them
impl Registry {
    /// A registry with the process' own metrics (CPU, memory, file descriptors) and
    /// `kubefan_build_info`.
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
        let help = "Always 1; the label says which version runs.";
        let build = registry.gauge_vec("kubefan_build_info", help, &["version"]);
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        registry
    }

    /// A number that only grows.
    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.declare(IntCounter::new(name, help).expect(DECLARED_ONCE))
    }

    /// Counters told apart by labels.
    pub fn counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.declare(IntCounterVec::new(Opts::new(name, help), labels).expect(DECLARED_ONCE))
    }

    /// A number that goes up and down.
    pub fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.declare(IntGauge::new(name, help).expect(DECLARED_ONCE))
    }

    /// Gauges told apart by labels.
    pub fn gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.declare(IntGaugeVec::new(Opts::new(name, help), labels).expect(DECLARED_ONCE))
    }

    /// A distribution, counted in `buckets` (upper bounds, ascending), such as [`SECONDS_BUCKETS`].
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.declare(Histogram::with_opts(options).expect(DECLARED_ONCE))
    }

    /// Histograms told apart by labels.
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

    /// Calls `collect` at every scrape, for numbers that are read where they live (the size of a
    /// cache) instead of being kept twice. It must not block, nor use this registry.
    ///
    /// A name that was declared by another method must not be used.
    pub fn on_scrape(&self, collect: impl Fn(&mut Samples) + Send + Sync + 'static) {
        self.on_scrape.lock().push(Arc::new(collect));
    }

    /// Everything in Prometheus' text format: (content type, body).
    pub fn render(&self) -> (&'static str, String) {
        let mut samples = Samples::default();
        for collect in self.on_scrape.lock().clone() {
            collect(&mut samples);
        }
        let mut families = self.metrics.gather();
        families.extend(samples.families.into_values());
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let body = TextEncoder::new()
            .encode_to_string(&families)
            .expect("every family has a name and a sample, and memory takes every write");
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
    /// Adds one sample of a gauge, labels as (name, value).
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = labelled(labels);
        metric.set_gauge(gauge);
        self.add(name, help, MetricType::GAUGE, metric);
    }

    /// Adds one sample of a counter, labels as (name, value).
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
