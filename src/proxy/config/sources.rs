//! Combines defaults, file, environment variables and flags into the settings, and records the
//! origin of each. Flags override environment variables, which override the file.

use std::collections::BTreeMap;
use std::path::Path;

use super::all_settings::Setting;
use super::args::Given;
use super::file;
use super::origin::Origin;
use super::problem::Problem;
use super::reader::Reader;
use super::settings::Settings;

/// The sources of the values of all settings.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Origins by key; a setting without an entry has its default. A part of a list has one if it
    /// is in the file; its key is such as `cache.resources.0.namespaces`.
    origins: BTreeMap<String, Origin>,
    /// Whether messages may name the flags of settings. Not if only a file is checked.
    has_flags: bool,
}

/// Overrides the defaults by the file at `path`, and by what environment variables and flags have
/// `given`; `None` if only the file is checked. Mistakes are added to `problems`.
pub(super) fn read(
    path: Option<&Path>,
    given: Option<&[Given]>,
    problems: &mut Vec<Problem>,
) -> (Settings, Sources) {
    let mut reader = Reader::new();
    if let Some(path) = path {
        file::read(path, &mut reader);
    }
    for given in given.unwrap_or_default() {
        reader.read_given(given);
    }
    let has_flags = given.is_some();
    let (settings, origins) = reader.finish(problems);
    (settings, Sources { origins, has_flags })
}

// === impl Sources ===

impl Sources {
    /// Returns the origin of the value of the setting `key`.
    pub(super) fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// Returns whether `key` was set by a source that has precedence over the source of `other`.
    pub(super) fn overrides(&self, key: &str, other: &str) -> bool {
        let rank = |key| match self.origin(key) {
            Origin::Default => 0,
            Origin::File(..) => 1,
            Origin::Environment(_) => 2,
            Origin::Flag(_) => 3,
        };
        rank(key) > rank(other)
    }

    /// Returns a problem with a setting. Its location is the position in the file, or the name of
    /// the flag or environment variable that set it.
    pub(super) fn problem(&self, key: &str, message: &str) -> Problem {
        match self.origin(key) {
            Origin::Default => Problem::new(Origin::Flag(self.name(key, key)), key, message),
            origin => Problem::new(origin.clone(), key, message),
        }
    }

    /// Returns a problem like [`Sources::problem`], with the element `index` of the list `key`, or
    /// with its key `part`.
    pub(super) fn problem_in(
        &self,
        key: &str,
        (index, part): (usize, Option<&str>),
        message: &str,
    ) -> Problem {
        let place = |key: &str| match part {
            Some(part) => format!("{key}.{part}"),
            None => key.to_owned(),
        };
        let part = self.origin(&place(&format!("{key}.{index}")));
        match (self.origin(key), part) {
            (whole @ Origin::File(..), Origin::Default) => {
                Problem::new(whole.clone(), &place(key), message)
            }
            (Origin::File(..), part) => Problem::new(part.clone(), &place(key), message),
            _ => self.problem(key, message),
        }
    }

    /// Returns the name of the setting `key` for a message: its environment variable, flag or key,
    /// depending on where it was set. A setting with its default is named by the origin of
    /// `beside`.
    pub(super) fn name(&self, key: &str, beside: &str) -> String {
        let origin = match self.origin(key) {
            Origin::Default => self.origin(beside),
            explicit => explicit,
        };
        match (self.origin(key), Setting::find(key)) {
            (Origin::Environment(variable), _) => variable.clone(),
            (_, Some(setting)) if self.has_flags && !matches!(origin, Origin::File(..)) => {
                setting.flag.name.clone()
            }
            _ => key.to_owned(),
        }
    }
}
