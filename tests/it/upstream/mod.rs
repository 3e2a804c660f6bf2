//! Against the real kube-apiserver; skipped, with one line that says so, where its
//! binaries are missing.

mod bad_input;
mod by_the_book;
mod clients;
mod cluster;
mod comparable;
mod consistent;
mod controllers;
mod deadlines;
mod deploy;
mod deprecated_paths;
mod differential;
mod epoch;
mod faults;
mod faulty;
mod freshness;
mod gzip;
mod headers;
mod herd;
mod isolation;
mod kubectl;
mod linearizable;
mod live_streams;
mod load;
mod measure;
mod outcomes;
mod own_writes;
mod protocols;
mod representations;
mod resume;
mod security;
mod sim_alike;
mod support_itself;
mod tables;
mod upgrades;
mod websocket;
