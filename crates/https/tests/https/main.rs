//! The server over real sockets.

mod kit;

mod certificates;
mod limits;
mod protocols;
