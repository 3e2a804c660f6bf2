//! The private rooms, for the tests, benches and fuzz targets of this repository. Nothing here is promised: names
//! come and go with any version.

macro_rules! rooms {
    ($($room:ident)*) => {
        $(
            pub mod $room {
                pub use crate::$room::*;
            }
        )*
    };
}

rooms! { app body commands concurrency config net process server tools }
