//! `kubefan load` with a real API server, and the measurements that are run by hand.

mod events;
mod gets;
mod kube_state_metrics;
mod load;
mod measure;
mod node_agents;
mod side_by_side;
mod tables;
