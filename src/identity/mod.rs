//! Who sends a request, and what the API server lets this user read.
//!
//! A cache is filled with kubefan's rights, and read by many users. So kubefan finds out who a
//! caller is, and asks the API server whether this user may read what it requests. All answers come
//! from the API server; kubefan only remembers them for some seconds.

mod user;

pub use user::User;
