//! What a client must not notice, and what it must hear of, when something else fails.

mod epoch;
mod faults;
mod isolation;
