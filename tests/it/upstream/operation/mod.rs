//! Installing and running kubefan: the README's commands, deploy/, wrong settings, and permissions.

mod access_log;
mod admin;
mod admin_api;
mod admin_matrix;
mod bad_input;
mod bill;
mod bill_by_hand;
mod chart;
mod deploy;
mod discovery;
mod readme_commands;
mod reload;
mod security;
mod start;
mod top;
mod why;
