//! Tests of mounting against a driver and a machine in memory; files are real, in a directory of
//! the test.

mod block;
mod errors;
mod fixture;
mod kills;
mod order;
mod republish;
mod requests;
mod spelling;
