//! The examples, run as their users run them, and their length.

use crate::repository::{read, root, rust_files};

#[allow(dead_code)] // `main` is the entry of the program that cargo builds
#[path = "../../examples/delete_everything.rs"]
mod delete_everything;

/// The longest example, in lines.
const MAX_LINES: usize = 100;

#[tokio::test]
async fn delete_everything_deletes_all_objects() {
    let deleted = delete_everything::run().await.expect("the example runs");
    assert_eq!(deleted, ["a-hello", "b-controller", "c-framework"]);
}

#[test]
fn examples_are_short() {
    let examples = rust_files(&root().join("examples"));
    assert!(!examples.is_empty());
    for example in examples {
        let lines = read(&example).lines().count();
        assert!(lines < MAX_LINES, "{} has {lines} lines", example.display());
    }
}
