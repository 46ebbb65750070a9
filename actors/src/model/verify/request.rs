//! What a check sees of a request, and how it finds its way in it without copies.

use std::borrow::Cow;

use super::super::peer_identity::PeerIdentity;

/// A request as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a, N, V> {
    /// In capitals.
    pub method: &'a str,
    /// Without the query, as received.
    pub path: &'a str,
    /// Without the question mark, as received.
    pub query: Option<&'a str>,
    /// Names in any case, repeats kept, in the order they came.
    pub headers: &'a [(N, V)],
    /// The bytes received.
    pub body: &'a [u8],
    /// Who the client is by its certificate, which the listener has checked.
    pub peer: Option<&'a PeerIdentity>,
}

impl<'a, N: AsRef<[u8]>, V: AsRef<[u8]>> Request<'a, N, V> {
    /// Every value of a header, in order.
    pub(super) fn values(&self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let named = move |key: &N| key.as_ref().eq_ignore_ascii_case(name.as_bytes());
        self.headers.iter().filter(move |(key, _)| named(key)).map(|(_, value)| value.as_ref())
    }

    /// The first value of a header.
    pub(super) fn value(&self, name: &'a str) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// All of a header. One that is repeated means the same as one with commas between (RFC 9110, section 5.3): it may
    /// have been taken apart on its way here. `separator` is what the scheme has where others have commas.
    pub(super) fn joined(&self, name: &'a str, separator: u8) -> Option<Cow<'a, [u8]>> {
        let mut values = self.values(name);
        let first = Cow::Borrowed(values.next()?);
        Some(values.fold(first, |mut line, value| {
            let text = line.to_mut();
            text.push(separator);
            text.extend_from_slice(value);
            line
        }))
    }
}

/// Up to `N` slices without a list on the heap.
pub(super) struct Slices<'a, const N: usize> {
    slices: [&'a [u8]; N],
    len: usize,
}

impl<'a, const N: usize> Slices<'a, N> {
    pub(super) const fn new() -> Self {
        Self { slices: [&[]; N], len: 0 }
    }

    /// Whether there was room.
    pub(super) fn push(&mut self, slice: &'a [u8]) -> bool {
        let place = self.slices.get_mut(self.len);
        let has_room = place.is_some();
        if let Some(place) = place {
            *place = slice;
            self.len += 1;
        }
        has_room
    }

    pub(super) fn as_slice(&self) -> &[&'a [u8]] {
        self.slices.get(..self.len).unwrap_or_default()
    }
}

impl<'a, const N: usize> FromIterator<&'a [u8]> for Slices<'a, N> {
    /// The first `N`.
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(slices: I) -> Self {
        let mut few = Self::new();
        for slice in slices {
            if !few.push(slice) {
                break;
            }
        }
        few
    }
}
