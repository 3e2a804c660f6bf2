mod file;
mod flags;
mod pages;
mod support;

pub(super) use support::{ServeLine, resolved};
