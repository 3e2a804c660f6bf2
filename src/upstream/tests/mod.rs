//! What this room's tests play with, and others' too.

pub(super) mod memory;
pub(super) mod support;
