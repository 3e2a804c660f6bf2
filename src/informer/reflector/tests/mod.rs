//! The reflector against an upstream that answers by script, and against a random one.

mod list_and_watch;
mod model;
mod recovery;
mod support;
