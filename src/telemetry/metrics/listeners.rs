//! What happens to connections, by listener.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::Registrar;
use super::parts::count;
use super::series::Family;

/// What of a request could not be read: the `kind` label of `ankusa_http_parse_failures_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParseFailure {
    /// No HTTP, or HTTP that must not be: 400, or a closed connection under HTTP/2.
    Invalid,
    /// Two parsers can read it differently: 400.
    Ambiguous,
    /// 414.
    UriTooLong,
    /// 431.
    HeadersTooLarge,
}

/// Why a connection was closed on its client: the `reason` label of `ankusa_http_connections_cut_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cut {
    /// `idle_timeout_ms`.
    Idle,
    /// `header_timeout_ms`.
    SlowHead,
    /// It took none of what was written to it.
    SlowReader,
    /// `http2.max_resets`.
    Resets,
}

/// Why a handshake came to nothing: the `reason` label of `ankusa_tls_handshake_failures_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HandshakeFailure {
    Timeout,
    /// The client went away.
    Closed,
    /// It speaks no TLS, or none that this node speaks, or does not like the node's certificate.
    Protocol,
    /// Its certificate is missing or not good.
    ClientCertificate,
}

const PARSE_FAILURES: [(ParseFailure, &str); 4] = [
    (ParseFailure::Invalid, "invalid"),
    (ParseFailure::Ambiguous, "ambiguous"),
    (ParseFailure::UriTooLong, "uri_too_long"),
    (ParseFailure::HeadersTooLarge, "headers_too_large"),
];

const CUTS: [(Cut, &str); 4] = [
    (Cut::Idle, "idle"),
    (Cut::SlowHead, "slow_head"),
    (Cut::SlowReader, "slow_reader"),
    (Cut::Resets, "resets"),
];

const HANDSHAKE_FAILURES: [(HandshakeFailure, &str); 4] = [
    (HandshakeFailure::Timeout, "timeout"),
    (HandshakeFailure::Closed, "closed"),
    (HandshakeFailure::Protocol, "protocol"),
    (HandshakeFailure::ClientCertificate, "client_certificate"),
];

/// The families of every listener.
#[derive(Debug)]
pub(super) struct ListenerFamilies {
    open: Family<Gauge>,
    at_limit: Family<Counter>,
    parse_failures: Family<Counter>,
    cuts: Family<Counter>,
    handshake_failures: Family<Counter>,
    reloads: Family<Counter>,
    certificate_ends: Family<Gauge<u64, AtomicU64>>,
}

impl ListenerFamilies {
    pub(super) fn new(to: &mut Registrar) -> Self {
        Self {
            open: to.add(
                "ankusa_http_connections",
                "Open connections",
                Family::new(Gauge::<i64, AtomicI64>::default),
            ),
            at_limit: to.counters(
                "ankusa_http_connections_at_limit",
                "Times that new connections had to wait for room",
            ),
            parse_failures: to.counters(
                "ankusa_http_parse_failures",
                "Requests whose head was refused, by what was wrong",
            ),
            cuts: to.counters(
                "ankusa_http_connections_cut",
                "Connections closed on their clients, by why",
            ),
            handshake_failures: to
                .counters("ankusa_tls_handshake_failures", "TLS handshakes that failed, by why"),
            reloads: to.counters(
                "ankusa_tls_reloads",
                "Changes of the certificate files, by whether they could be used",
            ),
            certificate_ends: to.add(
                "ankusa_tls_certificate_expiry_timestamp_seconds",
                "When the certificate in force runs out, in Unix time",
                Family::new(Gauge::default),
            ),
        }
    }

    /// Those of one listener, at zero.
    pub(super) fn of(&self, listener: &str) -> ListenerSeries {
        let label = ("listener", listener);
        ListenerSeries {
            open: self.open.of([label]),
            at_limit: self.at_limit.of([label]),
            parse_failures: PARSE_FAILURES
                .map(|(kind, name)| (kind, self.parse_failures.of([label, ("kind", name)])))
                .into(),
            cuts: CUTS.map(|(cut, name)| (cut, self.cuts.of([label, ("reason", name)]))).into(),
            handshake_failures: HANDSHAKE_FAILURES
                .map(|(why, name)| (why, self.handshake_failures.of([label, ("reason", name)])))
                .into(),
            reloads_ok: self.reloads.of([label, ("result", "ok")]),
            reloads_failed: self.reloads.of([label, ("result", "error")]),
            listener: listener.to_owned(),
            certificate_ends: self.certificate_ends.clone(),
        }
    }
}

/// The series of one listener.
#[derive(Clone, Debug)]
pub struct ListenerSeries {
    open: Gauge,
    at_limit: Counter,
    parse_failures: BTreeMap<ParseFailure, Counter>,
    cuts: BTreeMap<Cut, Counter>,
    handshake_failures: BTreeMap<HandshakeFailure, Counter>,
    reloads_ok: Counter,
    reloads_failed: Counter,
    listener: String,
    /// Without a series while there is no certificate.
    certificate_ends: Family<Gauge<u64, AtomicU64>>,
}

impl ListenerSeries {
    /// A connection is open from here on.
    pub fn opened(&self) {
        self.open.inc();
    }

    /// No longer.
    pub fn closed(&self) {
        self.open.dec();
    }

    /// There is no room for another connection.
    pub fn at_limit(&self) {
        self.at_limit.inc();
    }

    pub fn parse_failed(&self, kind: ParseFailure) {
        count(&self.parse_failures, &kind);
    }

    pub fn cut(&self, why: Cut) {
        count(&self.cuts, &why);
    }

    pub fn handshake_failed(&self, why: HandshakeFailure) {
        count(&self.handshake_failures, &why);
    }

    /// The certificate files have changed, and can be used or not.
    pub fn reloaded(&self, usable: bool) {
        if usable { &self.reloads_ok } else { &self.reloads_failed }.inc();
    }

    /// The certificate in force counts up to then, in Unix seconds.
    pub fn certificate_ends(&self, not_after_s: i64) {
        let series = self.certificate_ends.of([("listener", &self.listener)]);
        series.set(u64::try_from(not_after_s).unwrap_or(0));
    }
}
