# Commands for contributors. `just` without arguments lists the recipes.

default:
    @just --list

# Format the code.
fmt:
    cargo fmt

# Check the format and the lints.
lint:
    cargo fmt --check
    cargo clippy --all-targets -- -D warnings

# Check the lints of crates by themselves, without the features that others turn on.
lint-features:
    K8S_OPENAPI_ENABLED_VERSION=1.36 cargo clippy --package kubefan -- -D warnings
    for crate in kubefan-core kubefan kubefan-proxy kubefan-tools kubefan-top; do cargo clippy --package $crate --all-targets -- -D warnings || exit 1; done
    cargo clippy --package kubefan-cli --no-default-features -- -D warnings

# Run all tests; those against a real API server are ignored unless KUBEBUILDER_ASSETS is set.
test *ARGS:
    cargo test {{ ARGS }}

# Build the API documentation; broken links are errors.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items

# Build the pages of docs/ as a book in target/book (needs mdbook).
book:
    mdbook build

# Check the licences, duplicate versions and sources of the dependencies (needs cargo-deny).
deny:
    cargo deny check bans licenses sources

# Check that the library breaks no program that uses an older release, such as v0.2.0 (needs cargo-semver-checks).
semver RELEASE:
    K8S_OPENAPI_ENABLED_VERSION=1.36 cargo semver-checks --package kubefan --only-explicit-features --release-type minor --baseline-rev {{ RELEASE }}

# Build the binary as it is released, in target/dist.
dist:
    cargo build --profile dist

# Build the files of a release in target/release-artifacts (needs cargo-cyclonedx and Go).
release:
    deploy/release

# Run the benches.
bench *ARGS:
    cargo bench --package kubefan-cli {{ ARGS }}

# Run what CI runs, including the tests against a real API server, which it builds.
ci:
    .ci/run

# Start kubefan with the current kubeconfig.
run *ARGS:
    cargo run --release -- serve {{ ARGS }}
