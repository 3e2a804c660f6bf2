//! The words for building names.

/// The namespaces that every cluster has.
pub(super) const SYSTEM_NAMESPACES: [&str; 4] =
    ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The namespaces of tenants; further namespaces have a number appended.
pub(super) const TENANTS: [&str; 12] = [
    "shop",
    "payments",
    "search",
    "logistics",
    "identity",
    "monitoring",
    "media",
    "billing",
    "recommendations",
    "staging",
    "analytics",
    "notifications",
];

/// The names of deployments; further deployments of a namespace have a number appended.
pub(super) const APPS: [&str; 20] = [
    "web",
    "api",
    "worker",
    "gateway",
    "frontend",
    "orders",
    "catalog",
    "cart",
    "checkout",
    "inventory",
    "pricing",
    "sessions",
    "mailer",
    "scheduler",
    "indexer",
    "reports",
    "images",
    "feed",
    "webhooks",
    "audit",
];

/// The names of cron jobs.
pub(super) const CRON_JOBS: [&str; 4] = ["backup", "cleanup", "export", "reindex"];

/// Environment variables and their values; `{app}` and `{namespace}` are replaced.
pub(super) const ENVIRONMENT: [(&str, &str); 22] = [
    ("LOG_LEVEL", "info"),
    ("LOG_FORMAT", "json"),
    ("HTTP_LISTEN_ADDRESS", "0.0.0.0:8080"),
    ("HTTP_READ_TIMEOUT", "15s"),
    ("HTTP_WRITE_TIMEOUT", "30s"),
    ("METRICS_LISTEN_ADDRESS", "0.0.0.0:9090"),
    (
        "DATABASE_HOST",
        "{app}-primary.{namespace}.svc.cluster.local",
    ),
    ("DATABASE_NAME", "{app}"),
    ("DATABASE_POOL_SIZE", "20"),
    ("DATABASE_STATEMENT_TIMEOUT", "5s"),
    (
        "CACHE_URL",
        "redis://{app}-cache.{namespace}.svc.cluster.local:6379/0",
    ),
    ("CACHE_TTL_SECONDS", "300"),
    (
        "QUEUE_URL",
        "amqp://queue.{namespace}.svc.cluster.local:5672/{app}",
    ),
    ("QUEUE_PREFETCH", "64"),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "http://collector.monitoring.svc.cluster.local:4317",
    ),
    ("OTEL_SERVICE_NAME", "{namespace}/{app}"),
    ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
    ("OTEL_TRACES_SAMPLER_ARG", "0.05"),
    (
        "FEATURE_FLAGS_URL",
        "http://flags.{namespace}.svc.cluster.local/v1/flags",
    ),
    ("GOMAXPROCS", "2"),
    ("SHUTDOWN_GRACE_PERIOD", "25s"),
    ("REGION", "eu-north-1"),
];

pub(super) fn node(index: usize) -> String {
    format!("node-{index:03}")
}
