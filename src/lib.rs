//! What the node touches: adapters of the ports, and the node built from them.

pub mod rocks;
