//! Credentials for the API server: kubefan's own, from files and plugins, and the callers' that the
//! API server has accepted.

pub(in crate::upstream) mod accepted;
pub(super) mod exec_plugin;
pub(super) mod plugin_token;
pub(super) mod token_file;
