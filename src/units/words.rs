//! Words for what a person said of types.

use pg_graph::units::Limit;

/// Where a threshold comes from.
pub fn rule_words(limit: Limit) -> String {
    match limit {
        Limit::Auto => "mean + 4 sigma".into(),
        Limit::Fixed(_) => "set by hand".into(),
        Limit::Sigma(k) => format!("mean + {} sigma", f64::from(k) / 1e3),
        Limit::Quantile(q) => format!("{} % quantile", f64::from(q) / 1e4),
    }
}
