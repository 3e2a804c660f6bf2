//! The words for building names.

use std::sync::LazyLock;

/// The namespaces that every cluster has.
pub(super) const SYSTEM_NAMESPACES: [&str; 4] =
    ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The namespaces of tenants; further namespaces have a number appended.
pub(super) static TENANTS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    "shop payments search logistics identity monitoring media billing recommendations \
     staging analytics notifications"
        .split(' ')
        .collect()
});

/// The names of deployments; further deployments of a namespace have a number appended.
pub(super) static APPS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    "web api worker gateway frontend orders catalog cart checkout inventory pricing \
     sessions mailer scheduler indexer reports images feed webhooks audit"
        .split(' ')
        .collect()
});

/// The names of cron jobs.
pub(super) const CRON_JOBS: [&str; 4] = ["backup", "cleanup", "export", "reindex"];

/// One environment variable and its value per line; `{app}` and `{namespace}` are replaced.
const ENVIRONMENT_TEXT: &str = "\
LOG_LEVEL info
LOG_FORMAT json
HTTP_LISTEN_ADDRESS 0.0.0.0:8080
HTTP_READ_TIMEOUT 15s
HTTP_WRITE_TIMEOUT 30s
METRICS_LISTEN_ADDRESS 0.0.0.0:9090
DATABASE_HOST {app}-primary.{namespace}.svc.cluster.local
DATABASE_NAME {app}
DATABASE_POOL_SIZE 20
DATABASE_STATEMENT_TIMEOUT 5s
CACHE_URL redis://{app}-cache.{namespace}.svc.cluster.local:6379/0
CACHE_TTL_SECONDS 300
QUEUE_URL amqp://queue.{namespace}.svc.cluster.local:5672/{app}
QUEUE_PREFETCH 64
OTEL_EXPORTER_OTLP_ENDPOINT http://collector.monitoring.svc.cluster.local:4317
OTEL_SERVICE_NAME {namespace}/{app}
OTEL_TRACES_SAMPLER parentbased_traceidratio
OTEL_TRACES_SAMPLER_ARG 0.05
FEATURE_FLAGS_URL http://flags.{namespace}.svc.cluster.local/v1/flags
GOMAXPROCS 2
SHUTDOWN_GRACE_PERIOD 25s
REGION eu-north-1
";

/// The environment variables and their values.
pub(super) static ENVIRONMENT: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let lines = ENVIRONMENT_TEXT.lines();
    lines.filter_map(|line| line.split_once(' ')).collect()
});

pub(super) fn node(index: usize) -> String {
    format!("node-{index:03}")
}
