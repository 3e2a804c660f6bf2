//! Health: named checks of a program, and their report.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// The checks of a program. Clones share the checks.
///
/// *Healthz* reports whether the process should continue, or be restarted. *Readyz* reports whether
/// the process does its work, or can take it over.
#[derive(Clone, Default)]
pub struct Health {
    healthz: Arc<Checks>,
    readyz: Arc<Checks>,
}

type Checks = Mutex<Vec<(String, Check)>>;

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The results of all checks of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The name of each check, and why it failed.
    pub checks: Vec<(String, Result<(), String>)>,
}

impl Health {
    /// Creates an empty set of checks: the process is healthy and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check to [`Health::healthz`]. It must not block.
    pub fn add_healthz(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let check: Check = Arc::new(check);
        self.healthz.lock().push((name.into(), check));
    }

    /// Adds a check to [`Health::readyz`]. It must not block.
    pub fn add_readyz(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let check: Check = Arc::new(check);
        self.readyz.lock().push((name.into(), check));
    }

    /// Reports whether the process should continue.
    pub fn healthz(&self) -> Report {
        Report::of(&self.healthz)
    }

    /// Reports whether the process is ready.
    pub fn readyz(&self) -> Report {
        Report::of(&self.readyz)
    }
}

impl Report {
    fn of(checks: &Checks) -> Self {
        // Checks are called without the lock, so that they may add other checks.
        let checks = checks.lock().clone();
        let results = checks.into_iter().map(|(name, check)| (name, check()));
        Self {
            checks: results.collect(),
        }
    }

    /// Returns true if no check failed.
    pub fn is_ok(&self) -> bool {
        self.checks.iter().all(|(_, result)| result.is_ok())
    }
}

/// A line per check, as the API server's `/readyz?verbose` prints it: `[+]name ok`, or
/// `[-]name failed: reason`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, result) in &self.checks {
            match result {
                Ok(()) => writeln!(f, "[+]{name} ok")?,
                Err(reason) => writeln!(f, "[-]{name} failed: {reason}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("healthz", &self.healthz.lock().len())
            .field("readyz", &self.readyz.lock().len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lists_all_checks() {
        let health = Health::new();
        assert!(health.healthz().is_ok());
        health.add_healthz("ping", || Ok(()));
        assert!(health.healthz().is_ok());
        health.add_healthz("disk", || Err("it is full".to_owned()));
        let report = health.healthz();
        assert!(!report.is_ok());
        let text = report.to_string();
        assert_eq!(text, "[+]ping ok\n[-]disk failed: it is full\n");
        assert!(health.readyz().checks.is_empty());
    }
}
