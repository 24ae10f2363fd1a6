//! The types by what they cost: table 5 of the paper, as data.

use super::stats::UnitStats;
use super::thresholds::{Rule, Threshold, threshold};
use pg_event::Ns;

/// A row of the table.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The type, as the place in what the table was made of.
    pub of: usize,
    /// Units.
    pub units: u64,
    /// mu: mean duration, in ns.
    pub mean: f64,
    /// sigma, in ns; `None` below two units.
    pub sigma: Option<f64>,
    /// c: sigma in percent of the mean; `None` below two units.
    pub relative: Option<f64>,
    /// The median, in ns.
    pub median: Ns,
    /// The 99th percentile, in ns.
    pub p99: Ns,
    /// The greatest, in ns.
    pub greatest: Ns,
    /// How long a unit of it may take.
    pub threshold: Threshold,
}

/// One row for each type with units, the costliest (by mean) first, as in table 5.
pub fn table<'a>(types: impl IntoIterator<Item = &'a UnitStats>, rule: Rule) -> Vec<Row> {
    let row = |(of, s): (usize, &UnitStats)| {
        Some(Row {
            of,
            units: s.count(),
            mean: s.mean()?,
            sigma: s.sigma(),
            relative: s.relative(),
            median: s.quantile(0.5)?,
            p99: s.quantile(0.99)?,
            greatest: s.greatest()?,
            threshold: threshold(s, rule)?,
        })
    };
    let mut rows: Vec<Row> = types.into_iter().enumerate().filter_map(row).collect();
    rows.sort_by(|a, b| b.mean.total_cmp(&a.mean).then(a.of.cmp(&b.of)));
    rows
}

/// "Avg." of table 5: the mean of c, in percent, over the first ten rows that have one.
pub fn average_relative(rows: &[Row]) -> Option<f64> {
    let c: Vec<f64> = rows.iter().filter_map(|r| r.relative).take(10).collect();
    (!c.is_empty()).then(|| c.iter().sum::<f64>() / c.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two units with this mean (of table 5) and this relative deviation in percent, in units of a millionth.
    fn two(mean: f64, c: f64) -> UnitStats {
        // The deviation of a - d and a + d is d sqrt(2).
        let (mean, d) = (mean * 1e6, mean * 1e6 * c / 100.0 / 2f64.sqrt());
        UnitStats::of([(mean - d).round() as Ns, (mean + d).round() as Ns])
    }

    #[test]
    fn table_5() {
        let apache = [
            (839.0, 1.02),
            (695.0, 5.3),
            (540.0, 20.4),
            (517.0, 2.3),
            (511.0, 1.4),
            (507.0, 21.0),
            (488.0, 27.9),
            (467.0, 5.8),
            (462.0, 21.9),
            (439.0, 8.1),
        ];
        let seven_zip = [
            (1325005.0, 36.1),
            (1208225.0, 7.5),
            (1008056.0, 4.6),
            (952741.0, 6.6),
            (703649.0, 10.9),
            (96492.0, 3.4),
            (89088.0, 17.8),
            (81647.0, 7.4),
            (80450.0, 3.5),
            (79584.0, 11.1),
        ];
        // The paper's averages, and the digit its rows are rounded to.
        for (rows, average) in [(apache, 11.52), (seven_zip, 10.89)] {
            let cheap = two(1.0, 50.0);
            let stats: Vec<UnitStats> =
                std::iter::once(cheap).chain(rows.iter().rev().map(|r| two(r.0, r.1))).collect();
            let table = table(&stats, Rule::default());
            assert_eq!(table.iter().map(|r| r.of).collect::<Vec<_>>(), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
            for (row, (mean, c)) in table.iter().zip(rows) {
                assert!((row.mean / 1e6 - mean).abs() < 1e-3, "{} {mean}", row.mean);
                assert!((row.relative.unwrap() - c).abs() < 1e-3, "{:?} {c}", row.relative);
                // Equation 3 with k = 4.
                let expected = mean * 1e6 * (1.0 + 4.0 * c / 100.0);
                assert!((row.threshold.ns as f64 / expected - 1.0).abs() < 1e-5);
            }
            assert!((average_relative(&table).unwrap() - average).abs() < 0.02);
        }
    }

    #[test]
    fn types_without_units_or_with_one() {
        let rows = table(&[UnitStats::default(), UnitStats::of([5])], Rule::default());
        assert_eq!((rows.len(), rows[0].of, rows[0].relative), (1, 1, None));
        assert_eq!(average_relative(&rows), None);
    }
}
