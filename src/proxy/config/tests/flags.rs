use clap::CommandFactory;
use serde_json::{Value, json};

use super::support::{ServeLine, config_file};
use crate::config::all_settings::{SETTINGS, Setting, SettingKind};
use crate::config::origin::Origin;
use crate::config::settings::Settings;
use crate::config::sources;
use crate::ledger::Limits;

#[test]
fn every_setting_has_a_flag_of_its_own() {
    let mut flags: Vec<_> = SETTINGS.iter().map(|setting| setting.flag.long()).collect();
    flags.sort_unstable();
    flags.dedup();
    assert_eq!(flags.len(), SETTINGS.len());
    let command = ServeLine::command();
    let serve = command.find_subcommand("serve").expect("there is serve");
    let arguments = serve.get_arguments().chain(command.get_arguments());
    let mut ids: Vec<_> = arguments
        .map(|argument| argument.get_id().as_str())
        .filter(|id| !["config", "help", "help-all", "version"].contains(id))
        .collect();
    let mut keys: Vec<_> = SETTINGS
        .iter()
        .map(|setting| setting.key.as_str())
        .collect();
    ids.sort_unstable();
    keys.sort_unstable();
    assert_eq!(ids, keys);
}

/// A text for the flag of a setting, which is not its default, and the same value in a file.
fn example_of(setting: &Setting) -> (String, Value) {
    let text = match (&setting.kind, setting.flag.value.as_deref()) {
        (SettingKind::Boolean, _) => (setting.declared.default != true).to_string(),
        (SettingKind::Words(words), _) => words.last().expect("a word").clone(),
        (_, Some("CIDR")) => "10.0.0.0/8".to_owned(),
        (_, Some("[RESOURCE=]POLICY")) => "pods=any".to_owned(),
        (_, Some("DURATION")) => "7s".to_owned(),
        (_, Some("BYTES")) if setting.key == "limits.maxUrlBytes" => "7Ki".to_owned(),
        (_, Some("BYTES")) => "16Mi".to_owned(),
        (SettingKind::Number, _) => "2".to_owned(),
        (SettingKind::List | SettingKind::Text, _) => "/some/text".to_owned(),
    };
    let value = match &setting.kind {
        SettingKind::List => json!([text]),
        SettingKind::Boolean | SettingKind::Number => serde_json::from_str(&text).expect("JSON"),
        SettingKind::Words(_) | SettingKind::Text => json!(text),
    };
    (text, value)
}

#[test]
fn a_flag_sets_what_the_key_in_the_file_sets() {
    for setting in SETTINGS.iter() {
        let (text, value) = example_of(setting);
        let flag = match setting.flag.value {
            Some(_) => format!("{}={text}", setting.flag.name),
            None => "-vv".to_owned(),
        };
        let mut problems = Vec::new();
        let args = ServeLine::parse(["kubefan", "serve", &flag]);
        let (by_flag, origins) = sources::read(None, Some(&args.given), &mut problems);
        let parts = setting.key.rsplit('.');
        let file = parts.fold(value, |value, part| json!({ part: value }));
        let (_directory, path) = config_file(&file.to_string());
        let (by_file, _) = sources::read(Some(&path), None, &mut problems);
        assert_eq!(problems, [], "{flag}");
        assert_eq!(by_flag, by_file, "{flag}");
        assert_ne!(by_flag, Settings::default(), "{flag}");
        let origin = Origin::Flag(setting.flag.name.clone());
        assert_eq!(*origins.origin(&setting.key), origin, "{flag}");
    }
}

#[test]
fn twelve_settings_need_no_restart() {
    let live = SETTINGS.iter().filter(|setting| setting.declared.x_live);
    let live: Vec<_> = live.map(|setting| setting.key.as_str()).collect();
    assert_eq!(
        live,
        [
            "cache.resources",
            "cache.all",
            "cache.never",
            "cache.stripManagedFields",
            "cache.freshness",
            "cache.idleTimeout",
            "limits.maxRequestsInflight",
            "limits.maxStreamsPerUser",
            "limits.maxWatchesPerUser",
            "limits.maxProofScopesPerUser",
            "limits.maxStaleness",
            "log.verbosity",
        ]
    );
}

#[test]
fn the_least_memory_is_that_of_the_ledger() {
    for (key, least) in [
        ("limits.memory", Limits::MIN_MEMORY),
        ("limits.connectionMemory", Limits::MIN_CONNECTION_MEMORY),
    ] {
        let range = Setting::find(key).and_then(|setting| setting.range.as_ref());
        let range = range.expect("a range");
        assert!(range.contains(&json!(least)), "{key}");
        assert!(!range.contains(&json!(least - 1)), "{key}");
    }
}

#[test]
fn the_help_names_flags_and_the_first_sentence_is_enough() {
    for (key, expected) in [
        (
            "listen.tls.keyFile",
            "Private key (PEM) for --tls-cert-file",
        ),
        (
            "cache.all",
            "Cache every resource that can be cached, except Events, from the start",
        ),
        (
            "limits.maxHeaderBytes",
            "The longest head of a request; longer ones get 431 [default: 256Ki]",
        ),
    ] {
        let setting = Setting::find(key).expect(key);
        assert_eq!(setting.short_help(), expected);
    }
    for setting in SETTINGS.iter() {
        let help = setting.short_help();
        assert!(!help.contains('`') && help.len() < 280, "{help}");
    }
    let long = Setting::find("limits.maxHeaderBytes").expect("a setting");
    let long = long.long_help();
    assert!(
        long.ends_with("From 8Ki to 16Mi. [default: 256Ki]"),
        "{long}"
    );
}
