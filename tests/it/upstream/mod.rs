//! Against the real kube-apiserver; skipped, with one line that says so, where its
//! binaries are missing.

mod clients; // informers, controllers, kubectl, exec and attach, each protocol
mod consistency; // reads of the most recent state
mod differential; // the tables of tests/differential
mod failures; // lost watches, other histories, clients that do not read
mod operation; // README, deploy/, wrong settings, rights
mod performance; // kubefan load, and what is measured by hand
mod reads; // formats, headers, deadlines, and who answers
mod sim_alike; // the simulator against the API server
mod support_checks; // the helpers, on the API server alone
mod watches; // messages, resuming, WebSockets
