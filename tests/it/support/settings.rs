//! Environment variables that adjust tests and measurements when they are run by hand.

use std::env;
use std::str::FromStr;

use rand::SeedableRng;
use rand::rngs::StdRng;

/// Returns the value of the environment variable `name`, or `default` if it is not set.
///
/// # Panics
/// Panics if the value cannot be parsed as a `T`.
pub(crate) fn setting<T: FromStr>(name: &str, default: T) -> T {
    match env::var(name) {
        Err(_) => default,
        Ok(text) => match text.parse() {
            Ok(value) => value,
            Err(_) => panic!("{name}={text:?} cannot be parsed"),
        },
    }
}

/// Creates a random number generator. Its seed is the value of `KUBEFAN_SEED`, or random. Prints
/// the seed, so that a failed run can be repeated.
pub(crate) fn dice() -> StdRng {
    let seed = setting("KUBEFAN_SEED", rand::random());
    println!("KUBEFAN_SEED={seed}");
    StdRng::seed_from_u64(seed)
}
