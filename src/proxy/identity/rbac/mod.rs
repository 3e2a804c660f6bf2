//! Roles and bindings. kubefan watches them if it may, so that it notices a lost right at once.
//!
//! ```text
//! module    what it does
//! objects   the parts of roles and bindings that rights depend on
//! policy    all roles and bindings: which users a change affects, and what the roles allow
//! replaced  roles and bindings before their last changes
//! recent    recent changes; remembered decisions from before them do not count
//! watching  updates the policy, and reports changes
//! ```
//!
//! This module decides about no right. It only decides when and in what order kubefan asks the API
//! server again, and which watches get no events until the API server has answered. For the latter
//! it evaluates the roles: a change of a role of many users takes few rights away. To hold back all
//! watches of these users would stop them for minutes, and to hold back none would show the others
//! what they may not read any more until their question had its turn.

mod objects;
mod policy;
mod recent;
mod replaced;
mod watching;

pub(super) use recent::RecentChanges;
pub(super) use watching::RoleWatch;
