//! Failures of the upstream, of etcd, of kubefan itself and of other clients,
//! and what a client sees of them.

mod definitions;
mod epoch;
mod events;
mod events_in_cuts;
mod faults;
mod goaway;
mod isolation;
mod restart;
mod restart_of_real_clients;
mod restart_of_shards;
mod rolling_upgrade;
mod suspended;
mod torn_events;
