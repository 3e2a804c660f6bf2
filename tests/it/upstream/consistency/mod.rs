//! Reads of the most recent state show every write that was acknowledged before the read.

mod chain;
mod consistent;
mod crowd;
mod freshness;
mod herd;
mod linearizable;
mod own_writes;
mod pages;
mod sessions;
