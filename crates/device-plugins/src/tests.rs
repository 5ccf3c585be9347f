//! Registration.
