//! Real clients work through kubefan as they do directly.

mod controllers;
mod informers;
mod kubectl;
mod protocols;
mod upgrades;
