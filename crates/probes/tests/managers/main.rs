//! The managers on paused time, between scripted containers and whoever hears of them.

#![allow(missing_docs, clippy::expect_used, clippy::panic)]

mod world;

mod reports;
mod restarts;
mod schedules;
mod verdicts;
