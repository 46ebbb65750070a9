//! What can be broken, and of which requests.

use std::time::Duration;

use hyper::Method;

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answered by the proxy, with these headers and this body; the server never hears of it.
    Answer { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    /// The connection is reset instead of answered; the server never hears of it.
    Reset,
    /// Nothing ever comes back; the server never hears of it.
    Blackhole,
    /// The server is asked, and the connection reset instead of its answer.
    LoseAnswer,
    /// So many bytes of the answer's body, and then the connection ends.
    Truncate { after_bytes: usize },
    /// The answer's body in pieces of so many bytes, with a wait before each.
    Drip { bytes: usize, every: Duration },
    /// One bit in the middle of the answer's body is another.
    CorruptBody,
    /// Headers of the server's answer have this value instead, if they are there.
    Header { name: String, value: String },
    /// The answer to the first such request again, whatever was asked for.
    Repeat,
    /// The server is asked so much later.
    Late(Duration),
}

/// Which requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// `None`: any.
    pub method: Option<Method>,
    /// The path and query hold this text; empty: any.
    pub holds: String,
    /// So many of them are let through first.
    pub after: u64,
    /// So many of them are hit then; `None`: all.
    pub times: Option<u64>,
}

/// A fault and the requests it hits. The first rule of a list that hits a request is the one that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub when: When,
    pub fault: Fault,
}

impl Fault {
    /// A bare status.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: Vec::new() }
    }

    /// A status that asks to be left alone for so long.
    #[must_use]
    pub fn throttle(status: u16, retry_after: impl Into<String>) -> Self {
        let headers = vec![("retry-after".to_owned(), retry_after.into())];
        Self::Answer { status, headers, body: Vec::new() }
    }

    /// Of every request.
    #[must_use]
    pub fn always(self) -> Rule {
        Rule { when: When::default(), fault: self }
    }

    /// Of the next `times`.
    #[must_use]
    pub fn times(self, times: u64) -> Rule {
        Rule { when: When { times: Some(times), ..When::default() }, fault: self }
    }

    /// Of the requests with this method.
    #[must_use]
    pub fn of(self, method: Method) -> Rule {
        Rule { when: When { method: Some(method), ..When::default() }, fault: self }
    }
}

/// A rule and how many requests it could have hit.
#[derive(Debug)]
pub(crate) struct Armed {
    pub(crate) rule: Rule,
    pub(crate) matched: u64,
}

impl Armed {
    /// Whether this request is hit.
    pub(crate) fn hits(&mut self, method: &Method, target: &str) -> bool {
        let When { method: of, holds, after, times } = &self.rule.when;
        if of.as_ref().is_some_and(|of| of != method) || !target.contains(holds) {
            return false;
        }
        self.matched += 1;
        let nth = self.matched;
        nth > *after && times.is_none_or(|times| nth - after <= times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_hits_what_it_says_and_no_more() {
        let when =
            When { method: Some(Method::GET), holds: "list".to_owned(), after: 1, times: Some(2) };
        let mut armed = Armed { rule: Rule { when, fault: Fault::Reset }, matched: 0 };
        let mut hits = |method: Method, target: &str| armed.hits(&method, target);
        assert!(!hits(Method::PUT, "/list"));
        assert!(!hits(Method::GET, "/other"));
        let of_four: Vec<bool> = (0..4).map(|_| hits(Method::GET, "/?list=2")).collect();
        assert_eq!(of_four, [false, true, true, false]);
    }
}
