//! The cells of a row: what they show of an object, ages, and numbers as Go prints them.

pub(in crate::codec::table) mod age;
pub(in crate::codec::table) mod cell;
pub(in crate::codec::table) mod go_number;
pub(in crate::codec::table) mod value;
