//! Real clients work through kubefan as they do with the API server directly.

mod controllers;
mod informers;
mod kubectl;
mod languages;
mod products;
mod protocols;
mod uncached;
mod upgrades;
