//! Collector.
