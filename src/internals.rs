//! The private rooms, for the tests, benches and fuzz targets of this repository. They are not part
//! of the public API; any version may change them.

macro_rules! rooms {
    ($($room:ident)*) => {
        $(
            pub mod $room {
                pub use crate::$room::*;
            }
        )*
    };
}

rooms! { app body commands concurrency config identity ledger net process server tools }
