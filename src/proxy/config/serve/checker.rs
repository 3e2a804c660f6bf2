//! Collects the problems that the checks of the settings find.

use std::net::SocketAddr;

use crate::config::address;
use crate::config::problem::Problem;
use crate::config::settings::Settings;
use crate::config::sources::Sources;

pub(super) struct Checker<'a> {
    pub(super) settings: &'a Settings,
    pub(super) sources: &'a Sources,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl Checker<'_> {
    pub(super) fn report(&mut self, key: &str, message: &str) {
        self.problems.push(self.sources.problem(key, message));
    }

    /// Reports a problem like [`Checker::report`], with an element of the setting's list, or with
    /// one of the element's keys.
    pub(super) fn report_in(
        &mut self,
        key: &'static str,
        part: (usize, Option<&str>),
        message: &str,
    ) {
        self.problems
            .push(self.sources.problem_in(key, part, message));
    }

    pub(super) fn address(&mut self, key: &'static str, text: &str) -> Option<SocketAddr> {
        let address = address::parse(text);
        address.map_err(|message| self.report(key, &message)).ok()
    }
}
