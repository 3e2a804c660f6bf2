//! Callers with identities of their own: who may read what, through kubefan and directly.

mod identities;
mod matrix;
