//! The programs that tests start, and the files that these programs need.

pub(crate) mod apiserver;
pub(crate) mod assets;
pub(crate) mod certificates;
pub(crate) mod chart;
pub(crate) mod example;
pub(crate) mod informers;
pub(crate) mod kubeconfig;
pub(crate) mod kubectl;
pub(crate) mod kubefan;
pub(crate) mod process;
pub(crate) mod sibling;
pub(crate) mod sim;
