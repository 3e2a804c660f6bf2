//! When, where and how a load test was started.

use std::fs;
use std::num::NonZeroUsize;

use serde::Serialize;

/// What a reader of a report needs to repeat the test.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// The time of the start, as RFC 3339 in UTC.
    pub started: String,
    /// The command line.
    pub command: String,
    /// The name of the machine that ran the test.
    pub host: String,
    /// The number of cores that the test could use.
    pub cores: usize,
    /// The operating system of that machine, with its version.
    pub system: String,
}

impl Environment {
    /// Returns the environment of this process, with the current time as its start.
    pub(crate) fn of_process() -> Self {
        let kernel = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"));
            text.unwrap_or_default().trim().to_owned()
        };
        let second = jiff::Timestamp::now().as_second();
        let started = jiff::Timestamp::from_second(second);
        let words: Vec<_> = std::env::args().map(|word| quoted(&word)).collect();
        Self {
            started: started.map_or_else(|_| String::new(), |started| started.to_string()),
            command: words.join(" "),
            host: kernel("hostname"),
            cores: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            system: format!("{} {}", kernel("ostype"), kernel("osrelease")),
        }
    }

    /// Returns the names and values of all parts.
    pub(crate) fn rows(&self) -> [(&'static str, String); 3] {
        let cores = match self.cores {
            1 => "1 core".to_owned(),
            cores => format!("{cores} cores"),
        };
        [
            ("started", self.started.clone()),
            (
                "load test on",
                format!("{}, {cores}, {}", self.host, self.system),
            ),
            ("command", self.command.clone()),
        ]
    }
}

/// Quotes a word of a command line for a shell, if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_described() {
        let environment = Environment::of_process();
        assert!(environment.started.ends_with('Z'), "{environment:?}");
        assert!(
            environment.cores > 0 && !environment.host.is_empty(),
            "{environment:?}"
        );
        assert!(environment.system.starts_with("Linux "), "{environment:?}");
        assert!(!environment.command.is_empty(), "{environment:?}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("--rate", "--rate"),
            ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
            ("app=load-{i}", "'app=load-{i}'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
