use crate::telemetry::{LogConfig, LogFormat, Registry, SECONDS_BUCKETS, filter, subscriber};

#[test]
fn verbosity_and_rust_log_make_the_filter() {
    for (verbosity, is_quiet, level) in [
        (0, false, "info"),
        (1, false, "debug"),
        (2, false, "trace"),
        (9, false, "trace"),
        (0, true, "warn"),
        (1, true, "debug"),
    ] {
        let config = LogConfig {
            verbosity,
            is_quiet,
            ..LogConfig::default()
        };
        for rust_log in [None, Some(String::new())] {
            let text = filter(config, rust_log).unwrap().to_string();
            let directives: Vec<_> = text.split(',').collect();
            assert!(directives.contains(&level), "{verbosity}: {text}");
            let of_libraries = if verbosity > 1 { "info" } else { "warn" };
            let h2 = format!("h2={of_libraries}");
            let is_set = directives.contains(&h2.as_str());
            assert_eq!(is_set, level != "warn", "{verbosity}: {text}");
        }
        let own = filter(config, Some("kubefan_proxy::net=debug".to_owned()));
        assert_eq!(own.unwrap().to_string(), "kubefan_proxy::net=debug");
    }
}

/// The lines that `log` writes with the filter of `config`.
fn logged(config: LogConfig, log: impl FnOnce()) -> String {
    let lines = tempfile::NamedTempFile::new().unwrap();
    let file = std::sync::Arc::new(lines.reopen().unwrap());
    let (subscriber, _handle) = subscriber(config, None, file, false).unwrap();
    tracing::subscriber::with_default(subscriber, log);
    std::fs::read_to_string(lines.path()).unwrap()
}

#[test]
fn a_programs_own_lines_are_logged_and_those_of_libraries_are_not() {
    let lines = || {
        tracing::info!(target: "my_controller", "mine");
        tracing::debug!(target: "my_controller", "details");
        tracing::info!(target: "kubefan_core::informer", "ours");
        tracing::info!(target: "hyper_util::client", "chatter");
        tracing::warn!(target: "kube_client::client", "trouble");
    };
    let text = logged(LogConfig::default(), lines);
    for (word, is_logged) in [
        ("mine", true),
        ("details", false),
        ("ours", true),
        ("chatter", false),
        ("trouble", true),
    ] {
        assert_eq!(text.contains(word), is_logged, "{word}: {text}");
    }
    let verbose = LogConfig {
        verbosity: 1,
        ..LogConfig::default()
    };
    let text = logged(verbose, lines);
    assert!(
        text.contains("details") && !text.contains("chatter"),
        "{text}"
    );
}

#[test]
fn an_invalid_rust_log_is_reported() {
    let error = filter(LogConfig::default(), Some("kubefan=loud".to_owned())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "RUST_LOG=\"kubefan=loud\" is not a valid log filter, expected for example kubefan=debug"
    );
}

#[test]
fn log_format_round_trips() {
    for format in [LogFormat::Text, LogFormat::Json] {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    let error = "xml".parse::<LogFormat>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown log format \"xml\", expected text or json"
    );
}

#[test]
fn render_shows_declared_metrics_sorted_by_name() {
    let registry = Registry::new();
    let requests = registry.counter_vec("kubefan_test_requests_total", "Requests.", &["verb"]);
    requests.with_label_values(&["list"]).inc_by(2);
    registry.gauge("kubefan_test_open", "Open ones.").set(3);
    let seconds = registry.histogram("kubefan_test_seconds", "Seconds.", SECONDS_BUCKETS);
    seconds.observe(0.3);
    let (content_type, body) = registry.render();
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    let expected = "# HELP kubefan_test_open Open ones.\n# TYPE kubefan_test_open gauge\nkubefan_test_open 3\n\
        # HELP kubefan_test_requests_total Requests.\n# TYPE kubefan_test_requests_total counter\n\
        kubefan_test_requests_total{verb=\"list\"} 2\n";
    assert!(body.contains(expected), "{body}");
    assert!(body.contains("kubefan_test_seconds_bucket{le=\"0.25\"} 0\n"));
    assert!(body.contains("kubefan_test_seconds_bucket{le=\"0.5\"} 1\n"));
}

#[test]
fn process_and_build_metrics_exist_from_the_start() {
    let (_, body) = Registry::new().render();
    let build = concat!(
        "kubefan_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"} 1\n"
    );
    assert!(body.contains(build), "{body}");
    #[cfg(target_os = "linux")]
    assert!(body.contains("\nprocess_resident_memory_bytes "), "{body}");
}

#[test]
fn scrape_closures_are_called_at_each_scrape_and_merged() {
    let registry = Registry::new();
    let objects = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(1));
    for resource in ["pods", "a\"b"] {
        let objects = objects.clone();
        registry.on_scrape(move |samples| {
            let count = objects.load(std::sync::atomic::Ordering::Relaxed);
            let labels = [("resource", resource)];
            samples.gauge("kubefan_test_objects", "Objects.", &labels, count.into());
            samples.counter("kubefan_test_events_total", "Events.", &labels, 0.5);
        });
    }
    registry.render();
    objects.store(42, std::sync::atomic::Ordering::Relaxed);
    let (_, body) = registry.render();
    let expected = "# HELP kubefan_test_objects Objects.\n# TYPE kubefan_test_objects gauge\n\
        kubefan_test_objects{resource=\"pods\"} 42\nkubefan_test_objects{resource=\"a\\\"b\"} 42\n";
    assert!(body.contains(expected), "{body}");
    assert!(body.contains("# TYPE kubefan_test_events_total counter\n"));
    assert!(body.contains("kubefan_test_events_total{resource=\"pods\"} 0.5\n"));
}

#[test]
#[should_panic(expected = "metrics are declared once")]
fn declaring_a_metric_twice_panics() {
    let registry = Registry::new();
    registry.gauge("kubefan_test_open", "Open ones.");
    registry.gauge("kubefan_test_open", "Open ones.");
}
