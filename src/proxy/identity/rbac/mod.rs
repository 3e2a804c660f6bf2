//! Roles and bindings, which kubefan watches if it may, so that a lost right is noticed at once.
//!
//! ```text
//! module    what it does
//! objects   roles and bindings, as far as they say something about rights
//! policy    all of them; which users a change concerns, and what the roles allow
//! replaced  roles and bindings before their last changes
//! recent    the changes of the last 30 s, which remembered decisions must not precede
//! watching  keeps the policy up to date, and reports changes
//! ```
//!
//! Nothing here decides about a right. It only decides when, and in which order, the API server is
//! asked again, and which watches get no events until it has answered.

mod objects;
mod policy;
mod recent;
mod replaced;
mod watching;

pub(super) use recent::RecentChanges;
pub(super) use watching::RoleWatch;
