//! What all certificates that kubefan creates have in common.

use std::time::{Duration, SystemTime};

use anyhow::Context;
use rcgen::{CertificateParams, DistinguishedName, DnType};

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How far clients' clocks may be behind. New certificates are valid from this long ago.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);
/// The error if a key or certificate can't be created.
pub(super) const FAILED: &str = "cannot create a certificate";

/// Returns the parameters of a certificate with `names`, DNS names or IP addresses, that is valid
/// from `now` on, for `lifetime`.
pub(super) fn params(
    common_name: &str,
    names: &[String],
    now: SystemTime,
    lifetime: Duration,
) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(names).context(FAILED)?;
    params.distinguished_name = distinguished_name(common_name);
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + lifetime).into();
    Ok(params)
}

pub(super) fn distinguished_name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}
