//! Which groups are found by which changes, and that nothing is left of them.
