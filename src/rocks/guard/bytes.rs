//! The few encodings RocksDB uses inside its records. Nothing is allocated for a length that is only claimed.

/// Bytes that have not been read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Seven bits a byte, the lowest first, at most ten bytes.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A length, and so many bytes.
    pub(super) fn slice(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_to_their_last_bit_and_not_past_it() {
        let read = |bytes: &[u8]| Bytes(bytes).varint();
        assert_eq!(read(&[0]), Some(0));
        assert_eq!(read(&[0xac, 0x02]), Some(300));
        let mut largest = [0xff; 10];
        largest[9] = 1;
        assert_eq!(read(&largest), Some(u64::MAX));
        largest[9] = 2;
        assert_eq!(read(&largest), None);
        assert_eq!(read(&[0x80; 11]), None);
        assert_eq!(read(&[0x80]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn a_length_past_the_end_is_none() {
        let mut bytes = Bytes(&[2, b'a', b'b', 3, b'c']);
        assert_eq!(bytes.slice(), Some(&b"ab"[..]));
        assert_eq!(bytes.slice(), None);
    }
}
