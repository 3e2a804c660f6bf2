//! What all certificates that kubefan creates have in common.

use std::time::Duration;

use rcgen::{DistinguishedName, DnType};

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How far clients' clocks may be behind. New certificates are valid from this long ago.
pub(super) const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

pub(super) fn distinguished_name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}
