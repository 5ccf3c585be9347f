//! The probe managers on paused time, with scripted containers.

#![allow(missing_docs, clippy::expect_used, clippy::panic)]

mod env;

mod reports;
mod restarts;
mod results;
mod schedules;
