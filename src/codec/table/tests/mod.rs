//! Against what a real kube-apiserver printed.

mod cells;
mod writer;
