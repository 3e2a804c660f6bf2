//! How kubefan is set up and run, and what rights it needs.

mod bad_input;
mod deploy;
mod readme_commands;
mod security;
