//! Hooks and the words of their failures.
