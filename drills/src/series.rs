//! The node's metrics, as a scrape shows them.

/// A scrape.
#[derive(Clone, Debug)]
pub struct Series(pub String);

impl Series {
    /// The sum of the series of this name that have all of these labels. None when there is no such series.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let values: Vec<f64> = self
            .0
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter_map(|rest| match rest.split_once('}') {
                Some((said, value)) => Some((said.strip_prefix('{')?, value)),
                None => Some(("", rest.strip_prefix(' ')?)),
            })
            .filter(|(said, _)| labels.iter().all(|(key, value)| has(said, key, value)))
            .filter_map(|(_, value)| value.trim().parse().ok())
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

fn has(labels: &str, key: &str, value: &str) -> bool {
    let wanted = format!("{key}=\"{value}\"");
    labels.split(',').any(|label| label == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_found_by_name_and_labels() {
        let scrape = Series(
            "# TYPE a counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"1\",y=\"4\"} 0.5\na_total_b{x=\"1\"} 9\nc 7\n".to_owned(),
        );
        assert_eq!(scrape.sum("a_total", &[("x", "1")]), Some(3.5));
        assert_eq!(scrape.sum("a_total", &[("y", "4"), ("x", "1")]), Some(0.5));
        assert_eq!(scrape.sum("a_total", &[("x", "2")]), None);
        assert_eq!(scrape.sum("c", &[]), Some(7.0));
        assert_eq!(scrape.sum("d", &[]), None);
    }
}
