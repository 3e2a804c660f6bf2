//! Support for the tests of `upstream`, and of other modules.

pub(super) mod support;
