//! Callers with identities of their own: what each may read, through kubefan and directly.

mod callers;
mod identities;
mod matrix;
