//! Compares Tables with the recorded Tables of a real kube-apiserver.

mod cells;
mod large;
mod writer;
