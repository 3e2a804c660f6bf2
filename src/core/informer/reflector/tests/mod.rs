//! Tests of the reflector with a scripted upstream, and with a random one.

mod list_and_watch;
mod model;
mod recovery;
mod support;
mod wakes;
