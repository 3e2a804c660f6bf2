//! Writes the texts that are generated from the settings, and checks that those in the repository
//! are up to date: the schema, `config/kubefan.yaml` and the tables of `docs/settings.md`.
//!
//! With `KUBEFAN_WRITE_GOLDEN=1` the files are written.

use std::fs;

use serde_json::Value;

use super::support::in_repository;
use crate::config::all_settings::{SETTINGS, Setting, SettingKind, definition};
use crate::config::schema;
use crate::config::settings::Settings;

/// The longest line of `config/kubefan.yaml`.
const WIDTH: usize = 100;
const HEADER: &str = "\
# yaml-language-server: $schema=kubefan.schema.json
#
# Every setting of `kubefan serve --config FILE` with its default. A file needs only the settings that
# differ. Environment variables override the file, and flags override both. Paths are relative to this
# file. Durations are numbers with units, such as 500ms, 75s or 1h 30m. Sizes are bytes, or a number
# and a unit, such as 64Mi or 1Gi.
";

/// Compares the text of a file with the wanted text.
fn assert_written(name: &str, wanted: &str) {
    let path = in_repository(name);
    if std::env::var_os("KUBEFAN_WRITE_GOLDEN").is_some() {
        fs::write(&path, wanted).expect("a file can be written");
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == wanted,
        "regenerate {name}: KUBEFAN_WRITE_GOLDEN=1 cargo test --package kubefan-proxy config::tests::pages"
    );
}

#[test]
fn the_checked_in_schema_has_every_setting() {
    assert_written("config/kubefan.schema.json", &schema());
}

#[test]
fn the_sample_has_every_setting() {
    let schema = schemars::schema_for!(Settings);
    let root = schema.as_value();
    let mut text = HEADER.to_owned();
    add_section(root, root, "", &mut text);
    assert_written("config/kubefan.yaml", &text);
}

/// Appends a section of the sample file.
fn add_section(root: &Value, section: &Value, prefix: &str, text: &mut String) {
    let indent = "  ".repeat(prefix.matches('.').count());
    let properties = section["properties"].as_object().expect("a section");
    for (name, property) in properties {
        let key = format!("{prefix}{name}");
        let Some(setting) = Setting::find(&key) else {
            if prefix.is_empty() {
                text.push('\n');
            }
            let description = property["description"].as_str().expect("a comment");
            text.push_str(&comment(&indent, description));
            text.push_str(&format!("{indent}{name}:\n"));
            add_section(root, definition(root, property), &format!("{key}."), text);
            continue;
        };
        text.push_str(&comment(&indent, &in_file(setting)));
        for line in setting
            .declared
            .x_example
            .iter()
            .flat_map(|example| example.lines())
        {
            text.push_str(format!("{indent}# {line}").trim_end());
            text.push('\n');
        }
        let default = match &setting.declared.default {
            Value::Null => String::new(),
            Value::String(plain) => format!(" {plain}"),
            value => format!(" {value}"),
        };
        text.push_str(&format!("{indent}{name}:{default}\n"));
    }
}

/// Returns the text for the sample file.
fn in_file(setting: &Setting) -> String {
    let unit = match setting.flag.value.as_deref() {
        Some("DURATION") => "Duration. ",
        Some("BYTES") => "Size. ",
        _ => "",
    };
    let mut sentences = vec![setting.meaning()];
    sentences.extend(setting.declared.notes());
    if setting.declared.default.is_null() || setting.declared.default == Value::Array(Vec::new()) {
        let default = setting.default_text();
        let sentence = (!default.is_empty()).then(|| format!("Default: {default}."));
        sentences.extend(sentence);
    }
    format!("{unit}{}", sentences.join(" "))
}

fn comment(indent: &str, text: &str) -> String {
    let lines = wrapped(&text.replace('`', ""), WIDTH - indent.len() - 2);
    lines
        .iter()
        .map(|line| format!("{indent}# {line}\n"))
        .collect()
}

/// Breaks a text into lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[test]
fn the_page_has_every_setting() {
    let page = fs::read_to_string(in_repository("docs/settings.md")).expect("the page");
    let (before, rest) = page.split_once("<!-- settings -->\n").expect("the begin");
    let (_, after) = rest.split_once("<!-- end -->").expect("the end");
    let tables = tables();
    let wanted = format!("{before}<!-- settings -->\n{tables}<!-- end -->{after}");
    assert_written("docs/settings.md", &wanted);
}

/// Returns a heading and a table for each section.
fn tables() -> String {
    let mut text = String::new();
    let mut heading = "";
    for setting in SETTINGS.iter() {
        if heading != setting.heading {
            heading = &setting.heading;
            text.push_str(&format!(
                "\n### {heading}\n\n| setting | flag and variable | default | meaning |\n|---|---|---|---|\n"
            ));
        }
        text.push_str(&row(setting));
    }
    text.push('\n');
    text
}

fn row(setting: &Setting) -> String {
    let flag = [
        setting.flag.short.map(|short| format!("`-{short}`, ")),
        Some(format!("`{}", setting.flag.name)),
        setting.flag.value.as_ref().map(|value| match setting.kind {
            SettingKind::Boolean => format!("[={value}]"),
            _ => format!(" {value}"),
        }),
        Some("`".to_owned()),
        setting
            .declared
            .x_variable
            .as_ref()
            .map(|variable| format!(", `{variable}`")),
    ];
    let default = match &setting.declared.default {
        Value::Null | Value::Array(_) => setting.default_text(),
        _ => format!("`{}`", setting.default_text()),
    };
    let mut meaning = vec![setting.meaning()];
    meaning.extend(setting.declared.notes());
    let page = setting.declared.x_page.as_ref();
    meaning.extend(page.map(|page| format!("[More]({}).", page.trim_start_matches("settings.md"))));
    let flag: String = flag.into_iter().flatten().collect();
    let cells = [
        format!("`{}`", setting.key),
        flag,
        default,
        meaning.join(" "),
    ];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}
