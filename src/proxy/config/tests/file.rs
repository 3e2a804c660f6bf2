use std::path::Path;
use std::time::Duration;

use kubefan_core::api::{LabelSelector, RawFieldSelector, escape_field_value};
use kubefan_core::informer::{FreshnessPolicy, ResourceRule, ResourceRules};
use kubefan_core::telemetry;
use proptest::prelude::{ProptestConfig, any, prop_assert};
use proptest::proptest;
use serde_json::json;

use super::support::{in_repository, problems_of, resolved};
use crate::config::all_settings::SETTINGS;
use crate::config::settings::Settings;
use crate::config::{ResolvedConfig, Resources, Tls, check_file, sources};
use crate::net::TlsFiles;
use crate::server::{SettingOrigin, ShardSelectors};

#[test]
fn all_problems_of_a_file_are_reported_at_once_with_their_positions() {
    let text = "\
listen:
  adress: 127.0.0.1:1
  address: 10.0.0.1:8001
  tls:
    certFile: a.pem
    certFile: b.pem
    selfSigned: yes
admin: 127.0.0.1:8002
cache:
  resources: [pods, 5, '']
  all: true
  idleTimeout: 10
  retentionAge: soon
  retentionBytes: -1
kubeconfig: x
upstream: {kubeconfig: ~/x, nonsense: 1}
log: {format: xml, verbosity: 300}
5: 6
";
    let expected = [
        "2:3 listen.adress unknown key, did you mean address?",
        "3:12 listen.address 10.0.0.1:8001 is not loopback",
        "5:15 listen.tls.certFile needs listen.tls.keyFile too",
        "6:5 listen.tls.certFile given twice, first on line 5",
        "7:17 listen.tls.selfSigned invalid type string \"yes\", expected a boolean",
        "8:8 admin expected keys with values",
        "10:14 cache.resources a name is empty",
        "10:21 cache.resources invalid type integer `5`, expected a name, or keys such as",
        "11:8 cache.all already includes every resource; leave out cache.resources",
        "12:16 cache.idleTimeout invalid type integer `10`, expected a number and a unit",
        "13:17 cache.retentionAge expected a number and a unit",
        "14:19 cache.retentionBytes invalid type integer `-1`, expected a number of bytes",
        "15:1 kubeconfig unknown key, did you mean upstream.kubeconfig?",
        "16:24 upstream.kubeconfig ~ is not expanded",
        "16:29 upstream.nonsense unknown key, expected one of kubeconfig, context",
        "17:15 log.format unknown variant `xml`, expected `text` or `json`",
        "17:31 log.verbosity invalid value integer `300`, expected 0, 1 or 2",
        "18:1 5 unknown key, expected one of",
    ];
    let reported = problems_of(text);
    assert_eq!(reported.len(), expected.len(), "{reported:#?}");
    for (reported, expected) in reported.iter().zip(expected) {
        assert!(reported.starts_with(expected), "{reported}\n{expected}");
    }
}

#[test]
fn all_problems_of_cached_resources_are_reported() {
    let text = "\
cache:
  never: [secrets, '']
  resources:
    - resource: pods
      namespaces: ['']
      labelSelector: a in b
      fieldSelector: x
      freshness: pods=any
    - namespaces: [a]
    - {resource: nodes, nonsense: 1, retentionAge: soon, onDemand: 1, onDemand: true}
    - Pods
    - {resource: secrets, retentionBytes: 1Gi}
";
    let expected = [
        "2:10 cache.never a name is empty",
        "5:19 cache.resources.namespaces a namespace is empty",
        "6:22 cache.resources.labelSelector labelSelector ",
        "7:22 cache.resources.fieldSelector fieldSelector ",
        "8:18 cache.resources.freshness leave out the resource",
        "9:7 cache.resources missing field `resource`",
        "10:25 cache.resources.nonsense unknown key, expected one of",
        "10:52 cache.resources.retentionAge expected a number and a unit",
        "10:68 cache.resources.onDemand invalid type integer `1`, expected a boolean",
        "10:71 cache.resources.onDemand given twice, first on line 10",
        "11:7 cache.resources Pods is given twice",
        "12:7 cache.resources secrets is never cached",
    ];
    let reported = problems_of(text);
    assert_eq!(reported.len(), expected.len(), "{reported:#?}");
    for (reported, expected) in reported.iter().zip(expected) {
        assert!(reported.starts_with(expected), "{reported}\n{expected}");
    }
}

#[test]
fn values_that_can_not_work_are_reported_without_names_of_types() {
    for (text, expected) in [
        (
            "cache: {resources: [{resource: pods, namespaces: [Web_1]}]}",
            "cache.resources.namespaces: \"Web_1\" is not the name of a namespace, such as kube-system",
        ),
        (
            "cache: {indexLabels: [app, a b]}",
            "cache.indexLabels: \"a b\" is not the key of a label, such as app.kubernetes.io/name",
        ),
        ("log: {verbosity: 9}", "log.verbosity: must be from 0 to 2"),
        (
            "cache: {idleTimeout: 0s}",
            "cache.idleTimeout: must be more than 0s",
        ),
        (
            "listen: {threads: 0}",
            "listen.threads: invalid value: integer `0`, expected a number from 1",
        ),
        (
            "limits: {maxRequestsInflight: many}",
            "limits.maxRequestsInflight: invalid type: string \"many\", expected a number from 0",
        ),
        (
            "limits: {memory: lots}",
            "limits.memory: expected a number of bytes, such as 1048576 or 64Mi: \"lots\" is none",
        ),
    ] {
        let problems = problems_of(text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        let expected = expected.replace(": ", " ");
        assert!(problems[0].ends_with(&expected), "{problems:?}");
    }
    let deep = format!("cache: {}", "[".repeat(100_000));
    let problems = problems_of(&deep);
    let expected = "the document is too large, or nested too deeply";
    assert!(problems[0].ends_with(expected), "{problems:?}");
}

#[test]
fn rules_of_resources_are_read() {
    let text = "\
cache:
  never: [secrets]
  stripManagedFields: true
  resources:
    - services
    - resource: pods
      namespaces: [a, b]
      labelSelector: app in (x,y),!z
      fieldSelector: spec.nodeName=$(HOME)
      freshness: bounded:5s
      retentionAge: 5m
      retentionBytes: 1Mi
      stripManagedFields: false
      onDemand: true
";
    let found = resolved(text, "").expect("no problems");
    let services = Resources::Named(vec!["services".to_owned()]);
    assert_eq!(found.serve.resources, services);
    let home = std::env::var("HOME").expect("tests have a home directory");
    let node = escape_field_value(&home);
    let rule = ResourceRule {
        resource: "pods".to_owned(),
        namespaces: ["a", "b"].map(str::to_owned).to_vec(),
        labels: LabelSelector::parse("app in (x,y),!z").expect("a selector"),
        fields: RawFieldSelector::parse(&format!("spec.nodeName={node}")).expect("a selector"),
        freshness: Some(FreshnessPolicy::Bounded(Duration::from_secs(5))),
        retention_age: Some(Duration::from_secs(300)),
        retention_bytes: Some(1 << 20),
        strip_managed_fields: Some(false),
    };
    let rules = ResourceRules {
        never: vec!["secrets".to_owned()],
        strip_managed_fields: true,
        rules: vec![rule],
    };
    assert_eq!(found.serve.rules, rules);
    // What is shown is read again, as it was written.
    let shown = found.to_yaml().expect("UTF-8");
    let again = resolved(&shown, "").expect("no problems");
    assert_eq!(again.settings, found.settings);
    // A flag replaces the list, and other flags do not.
    let named = resolved(text, "-r nodes --never-cache a,b").expect("no problems");
    assert_eq!(named.serve.rules.rules, []);
    assert_eq!(named.serve.rules.never, ["a", "b"]);
    // Rules may be given beside `all`.
    let all = text
        .replace("    - services\n", "")
        .replace("cache:", "cache:\n  all: true");
    let all = resolved(&all, "").expect("no problems").serve;
    assert_eq!((all.resources, all.rules), (Resources::All, rules));
}

#[test]
fn a_variable_that_is_not_set_is_named_and_a_check_needs_none() {
    let text =
        "cache:\n  resources:\n    - resource: pods\n      fieldSelector: a=$(KUBEFAN_NOT_SET)\n";
    let reported = resolved(text, "").expect_err("it is not set");
    let expected =
        ":4:22: cache.resources.fieldSelector: the environment variable KUBEFAN_NOT_SET in";
    assert!(reported.contains(expected), "{reported}");
    assert_eq!(problems_of(text), Vec::<String>::new());
}

/// The file of the first version is still read, and a key that has another name now is named.
#[test]
fn files_of_earlier_versions_load_or_name_what_was_renamed() {
    let first = in_repository("tests/golden/config/first.yaml");
    check_file(&first).expect("no problems");
    let text = "listen:\n  insecure: true\n  nonsense: 1\n";
    let expected = [
        "2:3 listen.insecure was renamed; write listen.insecureExposeToNetwork",
        "3:3 listen.nonsense unknown key",
    ];
    let reported = problems_of(text);
    assert_eq!(reported.len(), expected.len(), "{reported:#?}");
    for (reported, expected) in reported.iter().zip(expected) {
        assert!(reported.starts_with(expected), "{reported}\n{expected}");
    }
}

#[test]
fn only_changed_settings_are_named_and_live_ones_apart() {
    let before = resolved("cache: {idleTimeout: 1h}\nlog: {verbosity: 1}\n", "");
    let after = "cache: {idleTimeout: 1h, never: [pods], secrets: true}\nlog: {format: json}\n";
    let after = resolved(after, "").expect("no problems");
    let changes = after.changes(&before.expect("no problems"));
    let expected = (
        vec!["cache.never", "log.verbosity"],
        vec!["cache.secrets", "log.format"],
    );
    assert_eq!(changes.expect("UTF-8"), expected);
}

#[test]
fn settings_in_use_are_those_of_the_start_unless_they_need_no_restart() {
    use SettingOrigin::{Default, File, Flag};
    let flags = "--listen 127.0.0.1:9";
    let started = "log: {verbosity: 1, format: json}\ncache: {secrets: true}\n";
    let started = resolved(started, flags).expect("no problems");
    let new = resolved("log: {verbosity: 2}\ncache: {secrets: false}\n", flags);
    let in_use = new.expect("no problems").in_use(&started).expect("UTF-8");
    assert_eq!(in_use.len(), SETTINGS.len());
    for (key, value, origin, place, needs_restart, waits_for_restart) in [
        ("log.verbosity", json!(2), File, "c.yaml:1", false, false),
        ("log.format", json!("json"), File, "c.yaml:1", true, true),
        ("cache.secrets", json!(true), File, "c.yaml:2", true, true),
        (
            "listen.address",
            json!("127.0.0.1:9"),
            Flag,
            "--listen",
            true,
            false,
        ),
        ("cache.never", json!([]), Default, "", false, false),
    ] {
        let setting = in_use.iter().find(|setting| setting.key == key);
        let setting = setting.expect("the setting");
        let shown = (&setting.value, setting.origin);
        assert_eq!(shown, (&value, origin), "{key}");
        let shown = setting.place.clone().unwrap_or_default();
        assert!(shown.ends_with(place), "{key}: {shown}");
        assert_eq!(setting.needs_restart, needs_restart, "{key}");
        assert_eq!(setting.waits_for_restart, waits_for_restart, "{key}");
    }
}

#[test]
fn limits_of_memory_that_are_too_small_are_reported() {
    let text = "limits: {memory: 1Mi, connectionMemory: 100Ki, minBodyRate: -1}\n";
    let expected = [
        "1:18 limits.memory must be at least 16Mi",
        "1:41 limits.connectionMemory must be at least 1Mi",
        "1:61 limits.minBodyRate invalid type integer `-1`, expected a number of bytes",
    ];
    let reported = problems_of(text);
    assert_eq!(reported.len(), expected.len(), "{reported:#?}");
    for (reported, expected) in reported.iter().zip(expected) {
        assert!(reported.starts_with(expected), "{reported}\n{expected}");
    }
}

#[test]
fn invalid_yaml_is_reported_with_its_position() {
    for (text, expected) in [
        ("a: b: c\n", "1:5 mapping values are not allowed"),
        ("cache: [1,\n", "1:8 unclosed bracket"),
        ("log:\n---\nlog:\n", "3:1 a second document"),
        ("- a\n", "1:1 expected keys with values"),
    ] {
        let reported = problems_of(text);
        assert_eq!(reported.len(), 1, "{text:?}: {reported:?}");
        assert!(reported[0].starts_with(expected), "{text:?}: {reported:?}");
    }
    let missing = check_file(Path::new("/nonexistent.yaml")).expect_err("no such file");
    let reported = missing.to_string();
    assert!(
        reported.contains("/nonexistent.yaml: cannot be read"),
        "{reported}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// For files of random lines, checking does not panic and each problem has a position.
    #[test]
    fn every_problem_of_any_file_has_a_position(
        lines in proptest::collection::vec((0_usize..3, any::<proptest::sample::Index>()), 0..12)
    ) {
        let words = [
            "listen:", "tls:", "cache: {", "}", "resources: [pods,", "]", "all: true", "- pods",
            "address: &a 127.0.0.1:1", "address: *a", "<<: *a", "keyFile: ~", "idleTimeout: 1e9",
            "? [1]", ": 1", "a/b: 1", "'", "|", "verbosity: 0x1", "format: !!str json", "---", "\t",
        ];
        let line = |(depth, word): &(usize, proptest::sample::Index)| {
            format!("{}{}\n", "  ".repeat(*depth), words[word.index(words.len())])
        };
        let text: String = lines.iter().map(line).collect();
        for reported in problems_of(&text) {
            prop_assert!(reported.starts_with(|c: char| c.is_ascii_digit()), "{text}\n{reported}");
        }
    }
}

#[test]
fn a_file_may_be_empty() {
    for text in [
        "",
        "# nothing\n",
        "listen:\ncache: {}\n",
        "cache:\n  idleTimeout:\n",
    ] {
        assert_eq!(problems_of(text), Vec::<String>::new(), "{text:?}");
    }
}

#[test]
fn the_file_overrides_defaults_and_flags_override_the_file() {
    let text = "
upstream: {kubeconfig: k, context: c}
listen: {address: 'localhost:1', tls: {certFile: /a.pem, keyFile: sub/b.pem}}
cache: {resources: [pods, nodes], indexLabels: [app], shardSelector: serve, retentionBytes: 1Mi, idleTimeout: 1h}
shutdown: {delay: 3s, gracePeriod: 500ms}
log: {format: json, verbosity: 2}
";
    let found = resolved(text, "--admin-listen 127.0.0.1:9 --context d").expect("no problems");
    let config = &found.serve;
    assert!(config.kubeconfig.as_ref().is_some_and(|k| k.is_absolute()));
    assert_eq!(config.context.as_deref(), Some("d"));
    assert_eq!(config.listen.to_string(), "127.0.0.1:1");
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:9");
    let names = ["pods", "nodes"].map(str::to_owned).to_vec();
    assert_eq!(config.resources, Resources::Named(names));
    assert_eq!(config.rules, ResourceRules::default());
    assert_eq!(config.informer.retention_bytes, Some(1 << 20));
    assert_eq!(config.informer.idle_timeout, Duration::from_secs(3600));
    assert_eq!(config.informer.retention_age, Duration::from_secs(75));
    assert_eq!(config.informer.indexed_labels, ["app"]);
    assert_eq!(config.requests.shard_selectors, ShardSelectors::Serve);
    let shutdown = &config.shutdown;
    assert_eq!(shutdown.not_ready_delay, Duration::from_secs(3));
    assert_eq!(shutdown.grace, Duration::from_millis(500));
    let Tls::Files(TlsFiles { certificate, key }) = &config.tls else {
        panic!("{:?}", config.tls)
    };
    assert_eq!(certificate, Path::new("/a.pem"));
    assert!(key.is_absolute() && key.ends_with("sub/b.pem"), "{key:?}");
    assert_eq!(found.log.format, telemetry::LogFormat::Json);
    assert_eq!(found.log.verbosity, 2);
}

#[test]
fn flags_undo_settings_of_the_file() {
    let all = |text, flags| resolved(text, flags).map(|found| found.serve.resources);
    let pods = Resources::Named(vec!["pods".to_owned()]);
    assert_eq!(all("cache: {all: true}", "--all=false -r pods"), Ok(pods));
    assert_eq!(
        all("cache: {resources: [pods]}", "--all"),
        Ok(Resources::All)
    );
    let tls = |flags| resolved("listen: {tls: {selfSigned: true}}", flags).map(|f| f.serve.tls);
    assert_eq!(tls("--tls-self-signed=false"), Ok(Tls::Plain));
}

#[test]
fn contradictions_between_file_and_flags_name_both_as_they_were_given() {
    for (text, flags, expected) in [
        (
            "cache: {all: true}",
            "-r pods",
            "c.yaml:1:14: cache.all: already includes every resource; leave out --resource",
        ),
        (
            "listen: {tls: {certFile: a, keyFile: b}}",
            "--tls-self-signed",
            "--tls-self-signed: can't be used with listen.tls.certFile",
        ),
        (
            "listen: {tls: {directory: a}}",
            "",
            "c.yaml:1:27: listen.tls.directory: has no effect without listen.tls.selfSigned",
        ),
        (
            "nonsense: 1",
            "--listen nowhere",
            "--listen: \"nowhere\" is not an ADDRESS:PORT",
        ),
    ] {
        let reported = resolved(text, flags).expect_err(expected);
        assert!(reported.contains(expected), "{reported}");
    }
}

#[test]
fn the_shown_config_reads_back_the_same_and_names_each_origin() {
    let text = "log: {format: json}\ncache:\n  resources: ['a\"b', '#c']\n";
    let shown = |found: &ResolvedConfig| found.to_yaml().expect("UTF-8");
    let first = resolved(text, "--listen 127.0.0.1:5").expect("no problems");
    let yaml = shown(&first);
    for line in [
        "  address: \"127.0.0.1:5\" # flag --listen",
        "    selfSigned: false # default",
        "  resources: [\"a\\\"b\",\"#c\"] # file ",
    ] {
        assert!(yaml.lines().any(|l| l.starts_with(line)), "{line}\n{yaml}");
    }
    assert!(
        yaml.contains("format: \"json\" # file ") && yaml.contains("c.yaml:1\n"),
        "{yaml}"
    );
    let again = resolved(&yaml, "").expect("no problems");
    assert_eq!(again.settings, first.settings);
}

#[test]
fn the_samples_are_read() {
    let mut problems = Vec::new();
    let path = in_repository("config/kubefan.yaml");
    let (settings, _) = sources::read(Some(&path), None, &mut problems);
    assert_eq!(problems, []);
    assert_eq!(settings, Settings::default());
    for name in ["sidecar", "node", "central"] {
        let path = in_repository(&format!("config/{name}.yaml"));
        check_file(&path).expect("no problems");
    }
}
