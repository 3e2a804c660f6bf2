//! How kubefan is set up and run, and what rights it needs.

mod bad_input;
mod by_the_book;
mod deploy;
mod security;
