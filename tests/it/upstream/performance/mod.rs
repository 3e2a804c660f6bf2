//! `kubefan load`, and the measurements that are run by hand.

mod load;
mod measure;
mod side_by_side;
