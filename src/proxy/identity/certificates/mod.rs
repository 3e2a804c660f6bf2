//! Client certificates: their users, their authorities, and the sources of the authorities.

pub(super) mod authorities;
pub(super) mod certificate;
pub(super) mod front_proxy;
pub(super) mod proof;
pub(super) mod published;
pub(super) mod reload;
pub(super) mod users;
