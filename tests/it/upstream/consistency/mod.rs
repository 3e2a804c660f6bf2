//! Reads of the most recent state miss nothing that was written before.

mod consistent;
mod freshness;
mod herd;
mod linearizable;
mod own_writes;
