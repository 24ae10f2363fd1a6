//! What several tests and the example `vectors` share.

pub mod kernel;
pub mod vectors;
