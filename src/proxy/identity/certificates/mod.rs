//! Client certificates: whom they name, by which authorities, and where these are from.

pub(super) mod authorities;
pub(super) mod front_proxy;
pub(super) mod proof;
pub(super) mod published;
pub(super) mod reload;
pub(super) mod users;
