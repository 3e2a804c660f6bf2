//! Callers with separate identities: what each may read, through kubefan and directly.

mod attack_costs;
mod attacks;
mod callers;
mod chart_rights;
mod covered_names;
mod credentials;
mod fairness;
mod flow_schemas;
mod identities;
mod load_balancers;
mod matrix;
mod observed;
mod open_watches;
mod outages;
mod own_requests;
mod questions;
mod refusals;
mod revocation;
mod revocation_times;
mod shipped;
mod slow_lists;
mod storms;
mod streams;
mod stretched;
