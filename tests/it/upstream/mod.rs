//! Tests of kubefan against a real kube-apiserver. They are ignored if no variable named its
//! directory during the build: see CONTRIBUTING.md.

mod abuse; // hostile clients, by hand
mod clients; // real clients: informers, controllers, kubectl, exec and attach, every protocol
mod consistency; // reads of the most recent state
mod differential; // the tables of tests/differential
mod failures; // lost watches, restored clusters, clients that do not read
mod identity; // callers with credentials of their own: who may read what
mod library; // programs that use the library
mod library_client; // their writes, with kube's client
mod library_controller; // the example of a controller, as a program
mod library_events; // Events of their recorder
mod library_examples; // the examples that need an API server
mod library_rights; // the rights that they need
mod library_scopes; // what the caches of their informers hold
mod library_twin; // the example of a controller beside its twin on controller-runtime
mod operation; // README, deploy/, wrong settings, permissions
mod performance; // kubefan load, and measurements that are run by hand
mod reads; // formats, headers and deadlines; which reads are answered from the cache
mod sim_alike; // the simulator compared with the API server
mod support_checks; // the test support itself, without kubefan
mod watches; // messages, resuming, WebSockets
