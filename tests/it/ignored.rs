//! Checks that the tests that need other programs are ignored in a build without these programs.
//!
//! Such a test has an attribute that depends on `apiserver` or `deploy_tools`, which build.rs sets.
//! The check searches the sources as text.

use crate::repository::{read, root, rust_files};

/// The tests in `tests/it/upstream` that need no other program: the file, and their names.
const NEED_NOTHING: &[(&str, &[&str])] = &[
    ("clients/kubectl.rs", &["a_line_of_the_list_is_parsed"]),
    (
        "differential/allowed.rs",
        &[
            "only_allowed_differences_are_masked_in_bodies",
            "only_allowed_differences_are_masked_in_headers",
        ],
    ),
    (
        "differential/answerers.rs",
        &["the_log_names_each_answerer"],
    ),
    (
        "differential/older.rs",
        &["each_difference_leaves_out_a_few_rows"],
    ),
    ("differential/table.rs", &["a_row_is_parsed"]),
    (
        "library_controller.rs",
        &["the_config_map_example_refuses_unknown_arguments"],
    ),
    (
        "operation/bad_input.rs",
        &[
            "an_invalid_command_line_is_a_usage_error",
            "an_unusable_kubeconfig_is_reported",
        ],
    ),
    (
        "operation/chart.rs",
        &[
            "the_schema_of_the_values_has_that_of_the_configuration",
            "every_value_is_in_the_readme",
        ],
    ),
    (
        "operation/deploy.rs",
        &[
            "the_image_is_pinned_and_runs_unprivileged",
            "shipped_binaries_are_built_like_measured_ones",
            "the_image_copies_whole_packages",
            "sources_include_only_what_the_image_copies",
            "the_assembled_image_is_that_of_the_dockerfile",
            "every_build_of_the_image_has_the_same_features",
            "the_unit_starts_kubefan_with_its_credential",
            "systemd_accepts_the_unit",
            "the_sidecar_caches_what_the_client_reads_and_has_no_other_right",
            "probes_use_tls",
            "the_readme_names_every_file_and_no_other",
        ],
    ),
    (
        "operation/reload.rs",
        &["a_sighup_during_the_start_does_not_end_kubefan"],
    ),
    (
        "operation/top.rs",
        &["a_kubefan_that_is_not_there_is_one_line"],
    ),
    ("sim_alike/wording.rs", &["only_names_are_normalised"]),
];

/// Calls of tests that start the programs, and the cfg that the attribute
/// of such a test must depend on.
const CALLS: &[(&str, &str)] = &[
    ("shared()", "apiserver"),
    ("private()", "apiserver"),
    ("private_with(", "apiserver"),
    ("private_with_tokens(", "apiserver"),
    ("Assets::find()", "apiserver"),
    ("Tools::find()", "deploy_tools"),
];
/// The cfgs on which an attribute may depend: those of one set of programs, and of both.
const CFGS: [&str; 3] = ["apiserver", "deploy_tools", "all(apiserver, deploy_tools)"];

struct Test<'a> {
    name: &'a str,
    /// `#[test]` and the attributes after it.
    attributes: &'a str,
    body: &'a str,
}

impl Test<'_> {
    /// Returns true if the test is ignored in a build without `program`, or always.
    fn is_ignored_without(&self, program: &str) -> bool {
        let cfgs = CFGS.iter().filter(|cfg| cfg.contains(program));
        // rustfmt breaks a long attribute into several lines.
        let attributes = without_whitespace(self.attributes);
        let depends = |cfg: &&str| {
            let attribute = format!("#[cfg_attr(not({cfg}), ignore");
            attributes.contains(&without_whitespace(&attribute))
        };
        attributes.contains("#[ignore") || cfgs.clone().any(depends)
    }

    /// Returns true if the body calls the function, and not a method with its name.
    fn calls(&self, call: &str) -> bool {
        let mut calls = self.body.match_indices(call);
        calls.any(|(at, _)| {
            let before = self.body[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.')
        })
    }
}

fn without_whitespace(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn tests_that_need_other_programs_are_ignored_without_them() {
    let folder = root().join("tests/it");
    let mut faults = Vec::new();
    let mut unseen: Vec<_> = NEED_NOTHING.iter().map(|(file, _)| *file).collect();
    for file in rust_files(&folder) {
        let name = file.strip_prefix(&folder).unwrap().to_str().unwrap();
        if name != "ignored.rs" {
            faults.extend(faults_in(name, &read(&file)));
        }
        unseen.retain(|listed| name.strip_prefix("upstream/") != Some(*listed));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    assert!(unseen.is_empty(), "there is no {unseen:?}");
}

/// Finds what is wrong in one file; `name` is its path below `tests/it`.
fn faults_in(name: &str, text: &str) -> Vec<String> {
    let tests = tests_in(text);
    let below = name.strip_prefix("upstream/");
    let listed = NEED_NOTHING.iter().find(|(file, _)| below == Some(*file));
    let listed = listed.map_or(&[][..], |(_, names)| names);
    let mut faults = Vec::new();
    for test in &tests {
        let is_ignored = ["apiserver", "deploy_tools"]
            .iter()
            .any(|program| test.is_ignored_without(program));
        let needs_nothing = listed.contains(&test.name);
        if below.is_some() && !is_ignored && !needs_nothing {
            faults.push(format!("{}: is not ignored without apiserver", test.name));
        }
        if is_ignored && needs_nothing {
            faults.push(format!("{}: is listed in NEED_NOTHING", test.name));
        }
        for (call, cfg) in CALLS {
            if test.calls(call) && !test.is_ignored_without(cfg) {
                faults.push(format!("{}: is not ignored without {cfg}", test.name));
            }
        }
    }
    let missing = listed
        .iter()
        .filter(|listed| tests.iter().all(|test| test.name != **listed));
    faults.extend(missing.map(|name| format!("{name}: there is no such test")));
    faults.dedup();
    let faults = faults.iter();
    faults.map(|fault| format!("{name}: {fault}")).collect()
}

fn tests_in(text: &str) -> Vec<Test<'_>> {
    let marks = ["#[test]", "#[tokio::test"];
    let starts = marks.iter().flat_map(|mark| text.match_indices(mark));
    starts
        .map(|(start, _)| {
            let indentation = text[..start]
                .chars()
                .rev()
                .take_while(|c| *c == ' ')
                .count();
            let end_of_body = format!("\n{}}}", " ".repeat(indentation));
            let rest = &text[start..];
            let (attributes, function) = rest.split_once("fn ").expect("a function");
            let (name, body) = function.split_once('(').expect("parameters");
            Test {
                name,
                attributes,
                body: body.split(&end_of_body).next().unwrap(),
            }
        })
        .collect()
}

#[test]
fn planted_faults_are_found() {
    let test = |attribute: &str, body: &str| {
        format!("#[tokio::test]\n{attribute}\nasync fn a() {{\n    {body}\n}}\nfn b() {{}}\n")
    };
    let apiserver = "#[cfg_attr(not(apiserver), ignore = \"needs kube-apiserver\")]";
    let inverted = "#[cfg_attr(apiserver, ignore = \"needs kube-apiserver\")]";
    let deploy_tools = "#[cfg_attr(not(deploy_tools), ignore = \"kube-apiserver and Helm\")]";
    let both = "#[cfg_attr(not(all(apiserver, deploy_tools)), ignore = \"needs both\")]";
    let by_hand = "#[ignore = \"by hand\"]";
    let table = [
        ("upstream/a.rs", "", "start();", Some("apiserver")),
        ("upstream/a.rs", apiserver, "start();", None),
        ("upstream/a.rs", both, "let tools = Tools::find();", None),
        ("upstream/a.rs", inverted, "start();", Some("apiserver")),
        (
            "upstream/a.rs",
            "// not ignored",
            "start();",
            Some("apiserver"),
        ),
        ("upstream/a.rs", by_hand, "let server = shared();", None),
        (
            "upstream/a.rs",
            deploy_tools,
            "let server = private().await;",
            Some("apiserver"),
        ),
        (
            "upstream/a.rs",
            apiserver,
            "let tools = Tools::find();",
            Some("deploy_tools"),
        ),
        ("a.rs", "", "start();", None),
        ("a.rs", "", "let server = shared();", Some("apiserver")),
        (
            "a.rs",
            "",
            "apiserver::shared().client();",
            Some("apiserver"),
        ),
        ("a.rs", "", "let both = future.shared();", None),
    ];
    for (name, attribute, body, missing) in table {
        let fault = missing.map(|cfg| format!("{name}: a: is not ignored without {cfg}"));
        let expected: Vec<_> = fault.into_iter().collect();
        assert_eq!(faults_in(name, &test(attribute, body)), expected, "{body}");
    }
    let name = "upstream/differential/table.rs";
    let listed = test(apiserver, "start();").replace("fn a(", "fn a_row_is_parsed(");
    let fault = "a_row_is_parsed: is listed in NEED_NOTHING";
    assert_eq!(faults_in(name, &listed), [format!("{name}: {fault}")]);
    let fault = "a_row_is_parsed: there is no such test";
    assert_eq!(faults_in(name, ""), [format!("{name}: {fault}")]);
}
