//! Reads terms, and refuses what is not one.

use std::borrow::Cow;

use super::shape::Shape;
use super::{EtfError, MAX_DEPTH, Term, VERSION, has_duplicates};

/// Items a container makes room for before it has read any: a count is only a claim.
const FIRST_CAPACITY: usize = 16;

/// A cursor over one term.
///
/// Each method consumes one whole term or fails; after an error the position means nothing.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    pub(super) whole: &'a [u8],
    pub(super) rest: &'a [u8],
    depth: usize,
}

impl<'a> Reader<'a> {
    /// Over a value that starts with the version byte.
    ///
    /// # Errors
    /// [`EtfError::NoVersion`] if it does not.
    pub fn versioned(bytes: &'a [u8]) -> Result<Self, EtfError> {
        match bytes.split_first() {
            Some((&VERSION, term)) => Ok(Self::bare(term)),
            Some(_) | None => Err(EtfError::NoVersion),
        }
    }

    /// Over a term without the version byte, such as [`Reader::raw`] gives.
    pub fn bare(bytes: &'a [u8]) -> Self {
        Self { whole: bytes, rest: bytes, depth: 0 }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`EtfError::Trailing`] if bytes are left.
    pub fn end(self) -> Result<(), EtfError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(EtfError::Trailing { bytes }),
        }
    }

    /// Any term, as a tree.
    ///
    /// # Errors
    /// Anything that is not a term.
    pub fn term(&mut self) -> Result<Term<'a>, EtfError> {
        let shape = self.shape()?;
        self.build(shape)
    }

    /// Passes over any term, as strictly as [`Reader::term`] but without a tree.
    ///
    /// # Errors
    /// Anything that is not a term.
    pub fn skip(&mut self) -> Result<(), EtfError> {
        let shape = self.shape()?;
        self.pass(shape)
    }

    /// Passes over any term and gives its bytes, without a version byte.
    ///
    /// # Errors
    /// Anything that is not a term.
    pub fn raw(&mut self) -> Result<&'a [u8], EtfError> {
        let start = self.at();
        self.skip()?;
        Ok(self.since(start))
    }

    /// An atom's name.
    ///
    /// # Errors
    /// Any other term, or none.
    pub fn atom(&mut self) -> Result<Cow<'a, str>, EtfError> {
        if let Shape::Leaf(Term::Atom(name)) = self.shape()? {
            Ok(name)
        } else {
            Err(self.unexpected("an atom"))
        }
    }

    /// An atom's name, `None` for the atom `nil`.
    ///
    /// # Errors
    /// Any other term, or none.
    pub fn optional_atom(&mut self) -> Result<Option<Cow<'a, str>>, EtfError> {
        self.atom().map(|name| (name != "nil").then_some(name))
    }

    /// # Errors
    /// Any other term, or none.
    pub fn binary(&mut self) -> Result<&'a [u8], EtfError> {
        self.optional_binary()?.ok_or_else(|| self.unexpected("a binary"))
    }

    /// A binary, `None` for the atom `nil`.
    ///
    /// # Errors
    /// Any other term, or none.
    pub fn optional_binary(&mut self) -> Result<Option<&'a [u8]>, EtfError> {
        let shape = self.shape()?;
        if let Shape::Leaf(Term::Binary(bytes)) = shape {
            return Ok(Some(bytes));
        }
        let is_nil = matches!(shape, Shape::Leaf(Term::Atom(name)) if name == "nil");
        if is_nil { Ok(None) } else { Err(self.unexpected("a binary")) }
    }

    /// A binary of UTF-8.
    ///
    /// # Errors
    /// Any other term, or none.
    pub fn text(&mut self) -> Result<&'a str, EtfError> {
        self.optional_text()?.ok_or_else(|| self.unexpected("a text"))
    }

    /// A binary of UTF-8, `None` for the atom `nil`.
    ///
    /// # Errors
    /// Any other term, or none.
    pub fn optional_text(&mut self) -> Result<Option<&'a str>, EtfError> {
        let bytes = self.optional_binary()?;
        let text = bytes.map(std::str::from_utf8).transpose();
        text.map_err(|_| self.unexpected("UTF-8"))
    }

    /// # Errors
    /// Any other term, or none.
    pub fn bool(&mut self) -> Result<bool, EtfError> {
        match self.atom()?.as_ref() {
            "true" => Ok(true),
            "false" => Ok(false),
            _other => Err(self.unexpected("true or false")),
        }
    }

    /// A non-negative integer up to 2^64 - 1.
    ///
    /// # Errors
    /// Any other term, or none.
    pub fn uint(&mut self) -> Result<u64, EtfError> {
        let value = if let Shape::Leaf(term) = self.shape()? { term.as_u64() } else { None };
        value.ok_or_else(|| self.unexpected("a non-negative integer"))
    }

    /// A non-negative integer up to 2^32 - 1.
    ///
    /// # Errors
    /// Any other term, or none.
    pub fn uint32(&mut self) -> Result<u32, EtfError> {
        u32::try_from(self.uint()?).map_err(|_| self.unexpected("an integer below 2^32"))
    }

    /// # Errors
    /// Any other term, an integer that does not fit, or none.
    pub fn int(&mut self) -> Result<i64, EtfError> {
        if let Shape::Leaf(Term::Int(value)) = self.shape()? {
            Ok(value)
        } else {
            Err(self.unexpected("an integer"))
        }
    }

    /// Enters a tuple: its `arity` elements are the next terms.
    ///
    /// # Errors
    /// Any other term, or none.
    pub fn tuple(&mut self, arity: usize) -> Result<(), EtfError> {
        if matches!(self.shape()?, Shape::Tuple(found) if found == arity) {
            Ok(())
        } else {
            Err(self.unexpected("a tuple of another size"))
        }
    }

    /// Calls `item` at each item of a proper list; it must consume exactly that. A list stored as a string of small
    /// integers is refused unless it is empty.
    ///
    /// # Errors
    /// Any other term, or what `item` answers.
    pub fn list<E: From<EtfError>>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.enter()?;
        loop {
            match self.shape()? {
                Shape::List(count) => {
                    for _ in 0..count {
                        item(self)?;
                    }
                }
                Shape::Bytes([]) => break,
                Shape::Bytes(_) | Shape::Leaf(_) | Shape::Tuple(_) | Shape::Map(_) => {
                    return Err(self.unexpected("a list").into());
                }
            }
        }
        self.leave();
        Ok(())
    }

    /// Calls `pair` with each key of a map, at its value; it must consume exactly that.
    ///
    /// # Errors
    /// Any other term, a key that occurs twice, or what `pair` answers.
    pub fn map<E: From<EtfError>>(
        &mut self,
        mut pair: impl FnMut(&Term<'a>, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let Shape::Map(count) = self.shape()? else {
            return Err(self.unexpected("a map").into());
        };
        self.enter()?;
        let mut keys = Vec::with_capacity(count.min(FIRST_CAPACITY));
        for _ in 0..count {
            let key = self.term()?;
            pair(&key, self)?;
            keys.push(key);
        }
        self.distinct(keys.iter())?;
        self.leave();
        Ok(())
    }

    fn distinct<'k>(&self, keys: impl Iterator<Item = &'k Term<'a>> + Clone) -> Result<(), EtfError>
    where
        'a: 'k,
    {
        if has_duplicates(keys) { Err(EtfError::DuplicateKey { at: self.at() }) } else { Ok(()) }
    }

    fn build(&mut self, shape: Shape<'a>) -> Result<Term<'a>, EtfError> {
        match shape {
            Shape::Leaf(term) => Ok(term),
            Shape::Bytes(bytes) => Ok(Term::List(small_integers(bytes).collect())),
            Shape::List(count) => self.build_list(count),
            Shape::Tuple(arity) => {
                let mut elements = Vec::with_capacity(arity.min(FIRST_CAPACITY));
                self.enter()?;
                for _ in 0..arity {
                    elements.push(self.term()?);
                }
                self.leave();
                Ok(Term::Tuple(elements))
            }
            Shape::Map(count) => {
                let mut pairs = Vec::with_capacity(count.min(FIRST_CAPACITY));
                self.enter()?;
                for _ in 0..count {
                    pairs.push((self.term()?, self.term()?));
                }
                self.distinct(pairs.iter().map(|(key, _)| key))?;
                self.leave();
                Ok(Term::Map(pairs))
            }
        }
    }

    /// A tail that is a list itself makes one longer list.
    fn build_list(&mut self, mut count: usize) -> Result<Term<'a>, EtfError> {
        let mut items = Vec::with_capacity(count.min(FIRST_CAPACITY));
        self.enter()?;
        loop {
            for _ in 0..count {
                items.push(self.term()?);
            }
            match self.shape()? {
                Shape::List(more) => count = more,
                Shape::Bytes(bytes) => {
                    items.extend(small_integers(bytes));
                    self.leave();
                    return Ok(Term::List(items));
                }
                shape @ (Shape::Leaf(_) | Shape::Tuple(_) | Shape::Map(_)) => {
                    let tail = self.build(shape)?;
                    self.leave();
                    return Ok(Term::ImproperList(Box::new((items, tail))));
                }
            }
        }
    }

    fn pass(&mut self, shape: Shape<'a>) -> Result<(), EtfError> {
        match shape {
            Shape::Leaf(_) | Shape::Bytes(_) => return Ok(()),
            Shape::List(count) => {
                self.enter()?;
                self.pass_list(count)?;
            }
            Shape::Tuple(arity) => {
                self.enter()?;
                for _ in 0..arity {
                    self.skip()?;
                }
            }
            Shape::Map(count) => {
                let mut keys = Vec::with_capacity(count.min(FIRST_CAPACITY));
                self.enter()?;
                for _ in 0..count {
                    keys.push(self.term()?);
                    self.skip()?;
                }
                self.distinct(keys.iter())?;
            }
        }
        self.leave();
        Ok(())
    }

    fn pass_list(&mut self, mut count: usize) -> Result<(), EtfError> {
        loop {
            for _ in 0..count {
                self.skip()?;
            }
            match self.shape()? {
                Shape::List(more) => count = more,
                shape @ (Shape::Leaf(_) | Shape::Bytes(_) | Shape::Tuple(_) | Shape::Map(_)) => {
                    return self.pass(shape);
                }
            }
        }
    }

    fn enter(&mut self) -> Result<(), EtfError> {
        if self.depth == MAX_DEPTH {
            return Err(EtfError::TooDeep { at: self.at() });
        }
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// A well-formed term that is not what the caller needs.
    pub fn unexpected(&self, wanted: &'static str) -> EtfError {
        EtfError::Unexpected { wanted, at: self.at() }
    }
}

fn small_integers<'a>(bytes: &[u8]) -> impl Iterator<Item = Term<'a>> {
    bytes.iter().map(|byte| Term::Int(i64::from(*byte)))
}
