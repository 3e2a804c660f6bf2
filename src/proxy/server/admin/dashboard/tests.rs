//! Tests of the dashboard's files. `tests/browser` looks at the page in a browser.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use http_body_util::BodyExt;

use super::*;

#[tokio::test]
async fn each_file_has_its_type_and_the_headers_that_confine_it() {
    for file in &FILES {
        let response = answer(file.path).expect("a file");
        assert_eq!(response.status(), 200);
        let headers = response.headers().clone();
        let expected = match file.path.rsplit_once('.') {
            None => HTML,
            Some((_, "css")) => CSS,
            Some((_, "js")) => SCRIPT,
            Some((_, other)) => panic!("{other} has no type"),
        };
        assert_eq!(headers["content-type"], expected, "{}", file.path);
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        let policy = headers["content-security-policy"].to_str().expect("text");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.split("; ").any(|own| own == part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        let body = response.into_body().collect().await.expect("no error");
        assert_eq!(body.to_bytes(), file.text.as_bytes());
    }
}

#[test]
fn only_the_names_of_files_are_answered() {
    for path in [
        "",
        "/index.html",
        "/dashboard",
        "/dashboard/",
        "/dashboard/index.html",
        "/dashboard/tests.rs",
        "/dashboard/main.js/",
        "/dashboard/./main.js",
        "/dashboard/../dashboard/main.js",
        "/dashboard/%6dain.js",
        "/dashboard//main.js",
        "//dashboard/main.js",
        "/DASHBOARD/main.js",
    ] {
        assert!(answer(path).is_none(), "{path}");
    }
}

/// A file that is not served would be found only in a browser, and so would one that is not there.
#[test]
fn every_file_of_the_folder_is_served_and_every_reference_leads_to_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("server/admin/dashboard");
    let names = fs::read_dir(folder).expect("the folder").map(|entry| {
        let name = entry.expect("an entry").file_name();
        name.into_string().expect("text")
    });
    let names = names.filter(|name| name != "tests.rs");
    let expected: BTreeSet<_> = names
        .map(|name| match name.as_str() {
            "index.html" => "/".to_owned(),
            _ => format!("/dashboard/{name}"),
        })
        .collect();
    let served: BTreeSet<_> = FILES.iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(served, expected);
    let mut references = 0;
    for file in &FILES {
        let before = match file.path {
            "/" => "=\"dashboard/",
            _ => " from \"./",
        };
        for reference in file.text.split(before).skip(1) {
            let name = reference.split('"').next().expect("the first part");
            let path = format!("/dashboard/{name}");
            assert!(answer(&path).is_some(), "{} names {path}", file.path);
            references += 1;
        }
    }
    assert!(references > 10, "only {references} references were found");
}

/// The policy of the page forbids most of these. A browser would refuse them, and the page be broken.
#[test]
fn the_page_makes_no_markup_from_texts_and_keeps_nothing() {
    for file in &FILES {
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "new Function",
            "localStorage",
            "sessionStorage",
            "document.cookie",
            " style=\"",
            " onclick=",
            "<style",
            "http://127",
            "https://",
        ] {
            assert!(!file.text.contains(forbidden), "{}: {forbidden}", file.path);
        }
    }
}
