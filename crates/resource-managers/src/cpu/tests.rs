//! Tables of the CPU manager.
