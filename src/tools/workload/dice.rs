//! A seeded source of random choices.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The characters of generated names in Kubernetes, without vowels, so that they form no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(super) struct Dice(StdRng);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// Draws a random number less than `end`; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        match end {
            0 => 0,
            _ => self.0.random_range(0..end),
        }
    }

    pub(super) fn between(&mut self, low: i64, high: i64) -> i64 {
        self.0.random_range(low..=high.max(low))
    }

    /// Draws a random index less than `length`; `None` if `length` is 0.
    pub(super) fn index(&mut self, length: usize) -> Option<usize> {
        // Draws a u64, because a range of usize would produce other numbers on a 32-bit machine.
        (length > 0).then(|| self.below(length as u64) as usize)
    }

    pub(super) fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let index = self.index(choices.len())?;
        choices.get(index)
    }

    /// Draws a random suffix for a generated name.
    pub(super) fn suffix(&mut self, length: usize) -> String {
        let letter = |_| char::from(LETTERS[self.below(LETTERS.len() as u64) as usize]);
        (0..length).map(letter).collect()
    }

    pub(super) fn uid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.0.random())
            .into_uuid()
            .to_string()
    }

    /// Draws random hexadecimal digits, sixteen for each of `words`.
    pub(super) fn hex(&mut self, words: usize) -> String {
        let word = |_| format!("{:016x}", self.0.random::<u64>());
        (0..words).map(word).collect()
    }

    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.fill(&mut bytes[..]);
        bytes
    }
}
