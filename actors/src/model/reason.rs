//! Why rows are dead, in as few words as an operator sorts them by.
//!
//! A dead row keeps a sentence for a person. Its class is told from that, so rows of any age and of the documented
//! system's have one.

/// A class of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasonClass {
    /// Its source is not configured any more.
    SourceGone,
    /// Its source has no sink any more that it could be for.
    SinkGone,
    /// The hook or the row cannot be read, or is missing.
    Unreadable,
    /// Its last attempt took too long.
    Timeout,
    /// Its sink crashed.
    Panicked,
    /// Whatever the sink said.
    Sink,
}

/// How the sentences of each class begin, in our words and in the documented system's terms.
const BEGINNINGS: [(ReasonClass, &[&str]); 5] = [
    (ReasonClass::SourceGone, &["source gone: ", "{:source_gone,"]),
    (ReasonClass::SinkGone, &["sink gone: ", "{:sink_gone,"]),
    (
        ReasonClass::Unreadable,
        &[
            "undecodable",
            "unsupported_envelope_version",
            "unsupported_delivery_row_version",
            "its row is missing",
            ":undecodable",
            "{:unsupported_envelope_version",
            "{:unsupported_delivery_row_version",
        ],
    ),
    (ReasonClass::Timeout, &["attempt timed out after ", "{:attempt_timeout,"]),
    (ReasonClass::Panicked, &["the sink panicked"]),
];

impl ReasonClass {
    pub const ALL: [Self; 6] = [
        Self::SourceGone,
        Self::SinkGone,
        Self::Unreadable,
        Self::Timeout,
        Self::Panicked,
        Self::Sink,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SourceGone => "source_gone",
            Self::SinkGone => "sink_gone",
            Self::Unreadable => "unreadable",
            Self::Timeout => "timeout",
            Self::Panicked => "panicked",
            Self::Sink => "sink",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// The class of what a dead row says.
    pub fn of(reason: &str) -> Self {
        let begins = |(_, with): &(Self, &[&str])| with.iter().any(|text| reason.starts_with(text));
        BEGINNINGS.into_iter().find(begins).map_or(Self::Sink, |(class, _)| class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_class() {
        for (reason, class) in [
            (r#"source gone: no source "s" is configured"#, ReasonClass::SourceGone),
            (r#"{:source_gone, "s"}"#, ReasonClass::SourceGone),
            (r#"sink gone: source "s" has no A"#, ReasonClass::SinkGone),
            ("{:sink_gone, 1, Ankusa.Sink.Http}", ReasonClass::SinkGone),
            ("undecodable: undecodable envelope: truncated", ReasonClass::Unreadable),
            ("unsupported_envelope_version: 9", ReasonClass::Unreadable),
            ("unsupported_delivery_row_version: 9", ReasonClass::Unreadable),
            ("its row is missing", ReasonClass::Unreadable),
            ("attempt timed out after 30000 ms", ReasonClass::Timeout),
            ("{:attempt_timeout, 30000}", ReasonClass::Timeout),
            ("the sink panicked", ReasonClass::Panicked),
            ("worker answered 410", ReasonClass::Sink),
            ("the source gone: is a sink's own words", ReasonClass::Sink),
            ("", ReasonClass::Sink),
        ] {
            assert_eq!(ReasonClass::of(reason), class, "{reason:?}");
        }
    }

    #[test]
    fn a_class_is_read_by_its_name() {
        for class in ReasonClass::ALL {
            assert_eq!(ReasonClass::parse(class.as_str()), Some(class));
        }
        assert_eq!(ReasonClass::parse("Sink"), None);
    }
}
