//! What was promised to whoever sent a hook: I1, I2, I3, I5 and I14.

use std::collections::{BTreeMap, BTreeSet};

use super::{Evidence, Findings, Invariant, Moment};
use crate::ledger::{Digest, Outcome, Request};
use crate::store::Store;

pub(super) fn judge(evidence: &Evidence<'_>, store: &Store, findings: &mut Findings) {
    let world = World::of(evidence, store);
    for request in evidence.requests {
        match &request.outcome {
            Outcome::Acked { id } => acked_is_kept(request, id, &world, evidence.moment, findings),
            Outcome::Held => held_is_kept(request, &world, findings),
            Outcome::Refused => refused_is_forgotten(request, &world, findings),
            Outcome::Unknown => unknown_is_one_or_none(request, &world, findings),
        }
    }
    ids_are_given_once(evidence, findings);
    bytes_are_kept(&world, findings);
    seqs_are_never_reused(evidence, store, findings);
}

/// The ledgers and the store, by what the promises ask of them.
struct World<'a> {
    /// Ids of hooks the sink accepted.
    accepted: BTreeSet<&'a str>,
    /// Ids of hooks stored with at least one delivery row.
    owed: BTreeSet<&'a str>,
    /// Where each body came up, with the id and source it had there.
    sightings: Vec<Sighting<'a>>,
    /// The ids each body came up under.
    ids_of: BTreeMap<Digest, BTreeSet<&'a str>>,
    sent: BTreeMap<Digest, &'a Request>,
}

/// Where a hook is that did not verify, and must be nowhere else.
const HELD: &str = "held";

struct Sighting<'a> {
    place: &'static str,
    id: &'a str,
    source: Option<&'a str>,
    body: Digest,
}

impl<'a> World<'a> {
    fn of(evidence: &Evidence<'a>, store: &'a Store) -> Self {
        let delivered = evidence.deliveries.iter().map(|seen| Sighting {
            place: "delivered",
            id: &seen.id,
            source: None,
            body: seen.body,
        });
        let stored = store.hooks.values().map(|hook| Sighting {
            place: "stored",
            id: &hook.id,
            source: Some(&hook.source),
            body: hook.body,
        });
        let held = store.held.values().map(|hook| Sighting {
            place: HELD,
            id: &hook.id,
            source: Some(&hook.source),
            body: hook.body,
        });
        let sightings: Vec<Sighting<'_>> = delivered.chain(stored).chain(held).collect();
        let mut ids_of: BTreeMap<Digest, BTreeSet<&str>> = BTreeMap::new();
        for sighting in &sightings {
            ids_of.entry(sighting.body).or_default().insert(sighting.id);
        }
        Self {
            accepted: evidence
                .deliveries
                .iter()
                .filter(|seen| seen.accepted)
                .map(|seen| seen.id.as_str())
                .collect(),
            owed: store
                .hooks
                .iter()
                .filter(|(seq, _)| store.deliveries_of(**seq).next().is_some())
                .map(|(_, hook)| hook.id.as_str())
                .collect(),
            sightings,
            ids_of,
            sent: evidence.requests.iter().map(|request| (request.body, request)).collect(),
        }
    }

    /// The ids this body came up under, as words.
    fn ids(&self, body: Digest) -> Vec<&'a str> {
        self.ids_of.get(&body).into_iter().flatten().copied().collect()
    }
}

fn acked_is_kept(
    request: &Request,
    id: &str,
    world: &World<'_>,
    moment: Moment,
    findings: &mut Findings,
) {
    let kept = match moment {
        Moment::Crash => world.accepted.contains(id) || world.owed.contains(id),
        Moment::Drained => world.accepted.contains(id),
    };
    if !kept {
        let missing = match moment {
            Moment::Crash => "was neither delivered nor is it stored with a delivery owed",
            Moment::Drained => "was never delivered",
        };
        findings.add(
            Invariant::AckedIsKept,
            format!(
                "hook {id} of {}, body {}, was acked and {missing}",
                request.source, request.body
            ),
        );
    }
}

/// It is in the pen, and nobody took it for a hook.
fn held_is_kept(request: &Request, world: &World<'_>, findings: &mut Findings) {
    let seen: Vec<&Sighting<'_>> =
        world.sightings.iter().filter(|sighting| sighting.body == request.body).collect();
    if !seen.iter().any(|sighting| sighting.place == HELD) {
        let (source, body) = (&request.source, request.body);
        findings.add(
            Invariant::AckedIsKept,
            format!("body {body} of {source} was said to be held, and is not in the pen"),
        );
    }
    for Sighting { place, id, body, .. } in seen.iter().filter(|seen| seen.place != HELD) {
        findings.add(
            Invariant::RefusedIsForgotten,
            format!("body {body} did not verify, and it is {place} as hook {id}"),
        );
    }
    let ids = world.ids(request.body);
    if ids.len() > 1 {
        findings.add(
            Invariant::UnknownIsOneOrNone,
            format!("body {} was held once and is in the pen as {ids:?}", request.body),
        );
    }
}

fn refused_is_forgotten(request: &Request, world: &World<'_>, findings: &mut Findings) {
    if !world.ids_of.contains_key(&request.body) {
        return;
    }
    for sighting in world.sightings.iter().filter(|sighting| sighting.body == request.body) {
        let (place, id) = (sighting.place, sighting.id);
        findings.add(
            Invariant::RefusedIsForgotten,
            format!("body {} was refused, and it is {place} as hook {id}", request.body),
        );
    }
}

fn unknown_is_one_or_none(request: &Request, world: &World<'_>, findings: &mut Findings) {
    let ids = world.ids(request.body);
    if ids.len() > 1 {
        findings.add(
            Invariant::UnknownIsOneOrNone,
            format!(
                "body {} was sent once without an answer and became the hooks {ids:?}",
                request.body
            ),
        );
    }
}

/// One id for two requests would let one delivery pay for both.
fn ids_are_given_once(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut given: BTreeMap<&str, Digest> = BTreeMap::new();
    for request in evidence.requests {
        if let Outcome::Acked { id } = &request.outcome
            && let Some(other) = given.insert(id, request.body)
            && other != request.body
        {
            findings.add(
                Invariant::BytesAreKept,
                format!("the bodies {other} and {} were both acked as hook {id}", request.body),
            );
        }
    }
}

/// Whatever is stored or was delivered is a body some client sent, under the id that client was told.
fn bytes_are_kept(world: &World<'_>, findings: &mut Findings) {
    for Sighting { place, id, source, body } in &world.sightings {
        let Some(request) = world.sent.get(body) else {
            findings.add(
                Invariant::BytesAreKept,
                format!("hook {id} is {place} with the body {body}, which no client sent"),
            );
            continue;
        };
        if let Outcome::Acked { id: told } = &request.outcome
            && told != id
        {
            findings.add(
                Invariant::BytesAreKept,
                format!("body {body} was acked as hook {told} and is {place} as hook {id}"),
            );
        }
        if let Some(source) = source
            && *source != request.source
        {
            findings.add(
                Invariant::BytesAreKept,
                format!("hook {id} was sent to {} and is {place} under {source}", request.source),
            );
        }
    }
}

fn seqs_are_never_reused(evidence: &Evidence<'_>, store: &Store, findings: &mut Findings) {
    let mut report = |evidence| findings.add(Invariant::SeqsAreNeverReused, evidence);
    let next_seq = store.next_seq.unwrap_or(1);
    if let Some((last, _)) = store.hooks.last_key_value()
        && *last >= next_seq
    {
        report(format!("seq {last} is stored and the next seq is {next_seq}"));
    }
    if next_seq < evidence.history.floor {
        report(format!(
            "the next seq is {next_seq}, and every seq below {} was durable before",
            evidence.history.floor
        ));
    }
    let mut seqs: BTreeMap<&str, u64> = BTreeMap::new();
    for (seq, hook) in &store.hooks {
        if let Some(other) = seqs.insert(&hook.id, *seq) {
            report(format!("hook {} is stored under the seqs {other} and {seq}", hook.id));
        }
        if let Some(before) = evidence.history.ids.get(seq)
            && *before != hook.id
        {
            report(format!("seq {seq} is hook {} and was hook {before}", hook.id));
        }
    }
}
