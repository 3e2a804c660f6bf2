//! What a test that is run by hand is told by the environment.

use std::env;
use std::str::FromStr;

use rand::SeedableRng;
use rand::rngs::StdRng;

/// The variable's value, or `default` when there is none.
///
/// # Panics
/// When it is none of its kind.
pub(crate) fn setting<T: FromStr>(name: &str, default: T) -> T {
    match env::var(name) {
        Err(_) => default,
        Ok(text) => match text.parse() {
            Ok(value) => value,
            Err(_) => panic!("{name}={text:?} can't be read"),
        },
    }
}

/// Chance, whose seed is told, or given by `KUBEFAN_SEED`.
pub(crate) fn dice() -> StdRng {
    let seed = setting("KUBEFAN_SEED", rand::random());
    println!("KUBEFAN_SEED={seed}");
    StdRng::seed_from_u64(seed)
}
