//! Who asks this node, and whether they may.
//!
//! A request passes when an authenticator says who makes it and the authorizer allows one of the
//! rights that `windlass_core::access` names for it. Everything fails closed: no answer is no.
