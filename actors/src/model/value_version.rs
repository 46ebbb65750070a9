//! The version a stored hook or delivery row carries ("Encoding and versions").

/// How a value is written. Readers take both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueVersion {
    /// The bare term.
    #[default]
    V0,
    /// Two letters for the kind, a version byte, the same term.
    V1,
}

impl ValueVersion {
    /// Starts a value in `out`; the term, with its own version byte, comes next.
    pub(super) fn begin(self, kind: [u8; 2], out: &mut Vec<u8>) {
        match self {
            Self::V0 => {}
            Self::V1 => {
                out.extend_from_slice(&kind);
                out.push(1);
            }
        }
    }

    /// Bytes before the term.
    pub(super) const fn prefix_bytes(self) -> usize {
        match self {
            Self::V0 => 0,
            Self::V1 => 3,
        }
    }
}

/// What a value's first bytes say about the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Versioned<'a> {
    /// The term, or what has to be one.
    Term(&'a [u8]),
    /// A version that only a newer release knows.
    Unsupported(u8),
}

impl<'a> Versioned<'a> {
    pub(super) fn of(kind: [u8; 2], value: &'a [u8]) -> Self {
        match value.strip_prefix(&kind).and_then(<[u8]>::split_first) {
            Some((1, term)) => Self::Term(term),
            Some((version, _)) => Self::Unsupported(*version),
            // No version at all: a bare term, whose own first byte no kind shares, or nothing of ours.
            None => Self::Term(value),
        }
    }
}
