//! Tests of the queue and of the controller.

mod controller;
mod fifo;
mod model;
