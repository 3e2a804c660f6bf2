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

# All tests; those against a real API server run if KUBEBUILDER_ASSETS is set.
test *ARGS:
    cargo test {{ ARGS }}

# The API documentation, with broken links as errors.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items

# Licences, duplicate versions, sources of the dependencies (needs cargo-deny).
deny:
    cargo deny check bans licenses sources

# The benches of the hot paths.
bench *ARGS:
    cargo bench {{ ARGS }}

# What CI runs, the real API server's build and suite included.
ci:
    .ci/run

# Start kubefan on the current kubeconfig.
run *ARGS:
    cargo run --release -- serve {{ ARGS }}
