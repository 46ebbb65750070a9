//! The signed text, as a template that each request fills in.

/// How many parts the longest text is put together from: they are gathered without a list on the heap.
pub(super) const MAX_PARTS: usize = 32;

/// The signed text, with what each request fills in. Filled in one pass: what a request sends is never read as a
/// placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub pieces: Vec<Piece>,
}

/// A part of the signed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Literal(String),
    /// `{body}`: the bytes received, or those that were compressed.
    Body,
    /// `{ts}`: the timestamp as it was sent, not the number read from it.
    Timestamp,
    /// `{header:NAME}`: the first value of that header.
    Header(String),
    /// `{method}`: in capitals, as received.
    Method,
    /// `{path}`: as received, without the query.
    Path,
    /// `{query}`: as received, without the question mark; nothing if there is none.
    Query,
    /// `{url}`: the URL the provider was given, and the query as received.
    Url,
    /// `{url:unescaped}`: the same with the escapes of `:/?@!$'()*,;` in the query undone and no others.
    UrlUnescaped,
    /// `{form}`: the fields of a form as names and values with nothing between, decoded, in order, none twice. A body
    /// that is no form adds nothing, and is proven by its SHA-256 in the query, as `bodySHA256`.
    Form,
}

/// Why a template is refused, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error(
        "has the unknown placeholder {{{0}}}; there are {{body}}, {{ts}}, {{header:NAME}}, {{method}}, {{path}}, {{query}}, \
         {{url}}, {{url:unescaped}} and {{form}}"
    )]
    UnknownPlaceholder(String),
    #[error("names {0:?} as a header, which cannot be one")]
    NotAHeaderName(String),
    #[error("opens a placeholder with {{ and does not close it")]
    Unclosed,
    #[error("is put together from too many parts")]
    TooManyParts,
}

impl Template {
    /// Reads `v0:{ts}:{body}` and the like.
    ///
    /// # Errors
    ///
    /// Anything in braces that is no placeholder, and more parts than are gathered.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((literal, after_brace)) = rest.split_once('{') {
            let (placeholder, tail) = after_brace.split_once('}').ok_or(TemplateError::Unclosed)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(literal.to_owned()));
            }
            pieces.push(Piece::placeholder(placeholder)?);
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.to_owned()));
        }
        let template = Self { pieces };
        if template.is_bounded() { Ok(template) } else { Err(TemplateError::TooManyParts) }
    }

    /// Whether its parts can be gathered.
    pub(super) fn is_bounded(&self) -> bool {
        self.pieces.iter().map(Piece::parts).sum::<usize>() <= MAX_PARTS
    }

    /// Whether the signature covers the body.
    pub fn covers_body(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Body | Piece::Form))
    }

    /// Whether the signature covers the URL that the provider was given.
    pub fn covers_url(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Url | Piece::UrlUnescaped))
    }

    /// Whether the signature covers the timestamp found in the header `name`, by either way of naming it.
    pub fn covers_timestamp(&self, name: &str) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Timestamp => true,
            Piece::Header(header) => header.eq_ignore_ascii_case(name),
            Piece::Literal(_)
            | Piece::Body
            | Piece::Method
            | Piece::Path
            | Piece::Query
            | Piece::Url
            | Piece::UrlUnescaped
            | Piece::Form => false,
        })
    }
}

impl Piece {
    fn placeholder(text: &str) -> Result<Self, TemplateError> {
        match (text, text.strip_prefix("header:")) {
            ("body", _) => Ok(Self::Body),
            ("ts", _) => Ok(Self::Timestamp),
            ("method", _) => Ok(Self::Method),
            ("path", _) => Ok(Self::Path),
            ("query", _) => Ok(Self::Query),
            ("url", _) => Ok(Self::Url),
            ("url:unescaped", _) => Ok(Self::UrlUnescaped),
            ("form", _) => Ok(Self::Form),
            (_, Some(name)) if is_header_name(name) => Ok(Self::Header(name.to_owned())),
            (_, Some(name)) => Err(TemplateError::NotAHeaderName(name.to_owned())),
            (_, None) => Err(TemplateError::UnknownPlaceholder(text.to_owned())),
        }
    }

    /// How many parts it fills in at most: an URL is two and the mark between.
    const fn parts(&self) -> usize {
        match self {
            Self::Url | Self::UrlUnescaped => 3,
            Self::Literal(_)
            | Self::Body
            | Self::Timestamp
            | Self::Header(_)
            | Self::Method
            | Self::Path
            | Self::Query
            | Self::Form => 1,
        }
    }
}

/// Whether a request can carry a header of this name (a token of RFC 9110).
pub(super) fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
