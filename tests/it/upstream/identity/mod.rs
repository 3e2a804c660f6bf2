//! Callers with identities of their own: what each may read, through kubefan and directly.

mod identities;
mod matrix;
