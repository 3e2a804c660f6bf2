# What contributors and CI run. `just` alone lists the recipes.

default:
    @just --list

# Format the code.
fmt:
    cargo fmt

# What a reviewer should not have to say.
lint:
    cargo fmt --check
    cargo clippy --all-targets -- -D warnings

# The lints with fewer features: the proxy without tools, and the library.
lint-features:
    cargo clippy --no-default-features --features proxy -- -D warnings
    K8S_OPENAPI_ENABLED_VERSION=1.36 cargo clippy --no-default-features --lib -- -D warnings

# All tests; those against a real API server run if KUBEBUILDER_ASSETS is set.
test *ARGS:
    cargo test {{ ARGS }}

# The API documentation, with broken links as errors.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items

# Licences, duplicate versions, sources of the dependencies (needs cargo-deny).
deny:
    cargo deny check bans licenses sources

# The binary as it is shipped, in target/dist.
dist:
    cargo build --profile dist

# The benches of the hot paths.
bench *ARGS:
    cargo bench {{ ARGS }}

# What CI runs, the real API server's build and suite included.
ci:
    .ci/run

# Start kubefan on the current kubeconfig.
run *ARGS:
    cargo run --release -- serve {{ ARGS }}
