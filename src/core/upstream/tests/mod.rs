//! Support for the tests of `upstream`, and of other rooms.

pub(super) mod support;
