//! A small store, built by hand byte by byte, with the ledgers that go with it. Every test breaks one thing in it.

use std::collections::BTreeMap;

use ankusa_drills_check::{
    Delivery, Digest, Dump, Evidence, Family, Invariant, Moment, Outcome, Request, Row, SeqHistory,
    Violation, judge,
};

/// When the rows of the scene are due, by seq: in Unix milliseconds.
pub(crate) fn at(seq: u64) -> u64 {
    1_688_169_000_000 + seq * 1_000 + 86
}

pub(crate) fn id(seq: u64) -> String {
    format!("01890a5d-ac96-774b-bcce-{seq:012}")
}

pub(crate) fn body(seq: u64) -> Vec<u8> {
    format!("body {seq}").into_bytes()
}

pub(crate) fn digest(seq: u64) -> Digest {
    Digest::of(&body(seq))
}

pub(crate) fn key(tag: u8, fields: &[&[u8]]) -> Vec<u8> {
    [&[tag], fields.concat().as_slice()].concat()
}

pub(crate) fn ord(tenant: &str) -> u32 {
    if tenant == "acme" { 1 } else { 2 }
}

/// The key of a held hook, or of its summary.
pub(crate) fn held(part: u8, seq: u64) -> Vec<u8> {
    key(part, &[&at(seq).to_be_bytes(), id(seq).as_bytes()])
}

mod etf {
    pub(super) fn term(inner: &[u8]) -> Vec<u8> {
        [&[131], inner].concat()
    }
    pub(super) fn atom(name: &str) -> Vec<u8> {
        [&[119, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat()
    }
    pub(super) fn binary(bytes: &[u8]) -> Vec<u8> {
        [&[109], u32::try_from(bytes.len()).unwrap().to_be_bytes().as_slice(), bytes].concat()
    }
    pub(super) fn int(value: i64) -> Vec<u8> {
        let sign = u8::from(value < 0);
        [&[110, 8, sign], value.unsigned_abs().to_le_bytes().as_slice()].concat()
    }
    pub(super) fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let pairs_bytes: Vec<u8> =
            pairs.iter().flat_map(|(key, value)| [atom(key), value.clone()].concat()).collect();
        [&[116], u32::try_from(pairs.len()).unwrap().to_be_bytes().as_slice(), &pairs_bytes]
            .concat()
    }
}

pub(crate) fn envelope(seq: u64, tenant: &str, body: &[u8]) -> Vec<u8> {
    etf::term(&etf::map(&[
        ("body", etf::binary(body)),
        ("id", etf::binary(id(seq).as_bytes())),
        ("size", etf::int(i64::try_from(body.len()).unwrap())),
        ("source_id", etf::binary(tenant.as_bytes())),
        (
            "tenant_id",
            if tenant == "default" { etf::atom("nil") } else { etf::binary(tenant.as_bytes()) },
        ),
    ]))
}

/// Bytes of the stored hook: what every `size` in the store says.
pub(crate) fn stored_bytes(seq: u64, tenant: &str) -> u64 {
    u64::try_from(envelope(seq, tenant, &body(seq)).len()).unwrap()
}

pub(crate) fn row(state: &str, at: u64, size: u64) -> Vec<u8> {
    etf::term(&etf::map(&[
        ("at", etf::int(i64::try_from(at).unwrap())),
        ("size", etf::int(i64::try_from(size).unwrap())),
        ("state", etf::atom(state)),
    ]))
}

pub(crate) fn counter(value: i64) -> Vec<u8> {
    etf::term(&etf::int(value))
}

fn dead_value(seq: u64, tenant: &str) -> Vec<u8> {
    let parts = [
        etf::binary(tenant.as_bytes()),
        etf::binary(id(seq).as_bytes()),
        etf::int(ord(tenant).into()),
    ];
    etf::term(&[vec![104, 3], parts.concat()].concat())
}

/// Everything the judge is given, open to be broken.
pub(crate) struct Scene {
    pub(crate) rows: BTreeMap<(Family, Vec<u8>), Vec<u8>>,
    pub(crate) requests: Vec<Request>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) history: SeqHistory,
    pub(crate) moment: Moment,
}

impl Scene {
    /// A store in order. Of tenant acme: hook 1 is delivered and gone, 2 is due, 3 is due again, 6 is delivered and waits for
    /// its archive. Of the default tenant: 4 is claimed, 5 is dead, 7 is due and its client never heard.
    pub(crate) fn in_order() -> Self {
        let mut scene = Self {
            rows: BTreeMap::new(),
            requests: Vec::new(),
            deliveries: Vec::new(),
            history: SeqHistory::default(),
            moment: Moment::Crash,
        };
        for (seq, tenant) in [
            (1, "acme"),
            (2, "acme"),
            (3, "acme"),
            (4, "default"),
            (5, "default"),
            (6, "acme"),
            (7, "default"),
        ] {
            let outcome = if seq == 7 { Outcome::Unknown } else { Outcome::Acked { id: id(seq) } };
            scene.requests.push(Request { source: tenant.into(), body: digest(seq), outcome });
        }
        scene.requests.push(Request {
            source: "acme".into(),
            body: digest(8),
            outcome: Outcome::Refused,
        });
        for (seq, attempt, accepted) in [(1, 1, true), (3, 1, false), (6, 1, true)] {
            scene.deliveries.push(Delivery { id: id(seq), body: digest(seq), attempt, accepted });
        }
        scene.store_tenants_and_seqs();
        for (seq, tenant) in [
            (2_u64, "acme"),
            (3, "acme"),
            (4, "default"),
            (5, "default"),
            (6, "acme"),
            (7, "default"),
        ] {
            scene.put(Family::Hooks, &seq.to_be_bytes(), &envelope(seq, tenant, &body(seq)));
        }
        scene.due(2, "acme", 0);
        scene.due(3, "acme", 1);
        scene.claimed(4, "default");
        scene.dead(5, "default");
        scene.archived(6, "acme");
        scene.put(Family::Index, &key(b'c', &[&6_u64.to_be_bytes(), &[0, 0, 0]]), b"");
        scene.due(7, "default", 0);
        scene.count_by_hand();
        scene.put_sentinels();
        scene
    }

    /// Hook 10 did not verify: its client was told so, and it lies in the pen.
    pub(crate) fn holding() -> Self {
        let mut scene = Self::in_order();
        scene.requests.push(Request {
            source: "acme".into(),
            body: digest(10),
            outcome: Outcome::Held,
        });
        scene.hold(10);
        scene
    }

    /// Puts hook `seq` into the pen.
    pub(crate) fn hold(&mut self, seq: u64) {
        let summary = etf::map(&[
            ("id", etf::binary(id(seq).as_bytes())),
            ("source_id", etf::binary(b"acme")),
        ]);
        self.put(Family::Quarantine, &held(b's', seq), &etf::term(&summary));
        self.put(Family::Quarantine, &held(b'b', seq), &envelope(seq, "acme", &body(seq)));
    }

    fn store_tenants_and_seqs(&mut self) {
        self.put(Family::Default, b"m:next_seq", &9_u64.to_be_bytes());
        for tenant in ["acme", "default"] {
            let ord = ord(tenant).to_be_bytes();
            self.put(Family::Tenants, &key(b't', &[&ord]), tenant.as_bytes());
            self.put(Family::Tenants, &key(b'n', &[tenant.as_bytes()]), &ord);
        }
    }

    fn count_by_hand(&mut self) {
        let bytes = |seq, tenant| i64::try_from(stored_bytes(seq, tenant)).unwrap();
        let acme = bytes(2, "acme") + bytes(3, "acme");
        let default = bytes(4, "default") + bytes(5, "default") + bytes(7, "default");
        for (ord, field, value) in [
            (1, 1, 1),
            (1, 2, 1),
            (1, 5, acme),
            (1, 6, 1),
            (2, 1, 1),
            (2, 3, 1),
            (2, 4, 1),
            (2, 5, default),
            (0, 1, 2),
            (0, 2, 1),
            (0, 3, 1),
            (0, 4, 1),
            (0, 5, acme + default),
            (0, 6, 1),
            (2, 8, bytes(5, "default")),
            (0, 8, bytes(5, "default")),
        ] {
            self.set_counter(ord, field, value);
        }
    }

    fn put_sentinels(&mut self) {
        for (family, low, high) in [
            (Family::Hooks, [0; 8].as_slice(), [0xFF; 8].as_slice()),
            (Family::Deliveries, &[0; 10], &[0xFF; 10]),
        ] {
            self.put(family, low, b"");
            self.put(family, high, b"");
        }
        for (tag, width) in
            [(b'D', 22), (b'F', 14), (b'x', 18), (b'X', 22), (b'A', 12), (b'a', 8), (b'c', 11)]
        {
            self.put(Family::Index, &[tag], b"");
            self.put(Family::Index, &[vec![tag], vec![0xFF; width]].concat(), b"");
        }
    }

    pub(crate) fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.rows.insert((family, key.to_vec()), value.to_vec());
    }

    /// Takes a row out, which must be there.
    pub(crate) fn remove(&mut self, family: Family, key: &[u8]) {
        assert!(self.rows.remove(&(family, key.to_vec())).is_some(), "no such row");
    }

    pub(crate) fn set_counter(&mut self, ord: u32, field: u8, value: i64) {
        self.put(
            Family::Counters,
            &[ord.to_be_bytes().as_slice(), &[field]].concat(),
            &counter(value),
        );
    }

    pub(crate) fn delivery_key(seq: u64) -> Vec<u8> {
        [seq.to_be_bytes().as_slice(), &[0, 0]].concat()
    }

    pub(crate) fn due_key(seq: u64, tenant: &str) -> Vec<u8> {
        key(b'D', &[&ord(tenant).to_be_bytes(), &at(seq).to_be_bytes(), &Self::delivery_key(seq)])
    }

    pub(crate) fn claimed_key(seq: u64, tenant: &str) -> Vec<u8> {
        key(b'F', &[&ord(tenant).to_be_bytes(), &Self::delivery_key(seq)])
    }

    pub(crate) fn active_key(seq: u64, tenant: &str) -> Vec<u8> {
        key(b'A', &[&(at(seq) / 1000).to_be_bytes(), &ord(tenant).to_be_bytes()])
    }

    pub(crate) fn dead_keys(seq: u64, tenant: &str) -> [Vec<u8>; 2] {
        let slot = Self::delivery_key(seq);
        [
            key(b'x', &[&at(seq).to_be_bytes(), &slot]),
            key(b'X', &[&ord(tenant).to_be_bytes(), &at(seq).to_be_bytes(), &slot]),
        ]
    }

    fn size(seq: u64, tenant: &str) -> [u8; 4] {
        u32::try_from(stored_bytes(seq, tenant)).unwrap().to_be_bytes()
    }

    fn due(&mut self, seq: u64, tenant: &str, kind: u8) {
        self.put(
            Family::Deliveries,
            &Self::delivery_key(seq),
            &row("pending", at(seq), stored_bytes(seq, tenant)),
        );
        self.put(
            Family::Index,
            &Self::due_key(seq, tenant),
            &[Self::size(seq, tenant).as_slice(), &[kind]].concat(),
        );
        self.put(Family::Index, &Self::active_key(seq, tenant), b"");
    }

    fn claimed(&mut self, seq: u64, tenant: &str) {
        self.put(
            Family::Deliveries,
            &Self::delivery_key(seq),
            &row("pending", at(seq), stored_bytes(seq, tenant)),
        );
        self.put(Family::Index, &Self::claimed_key(seq, tenant), &Self::size(seq, tenant));
    }

    fn dead(&mut self, seq: u64, tenant: &str) {
        self.put(
            Family::Deliveries,
            &Self::delivery_key(seq),
            &row("dead", at(seq), stored_bytes(seq, tenant)),
        );
        let [by_time, by_tenant] = Self::dead_keys(seq, tenant);
        self.put(Family::Index, &by_time, &dead_value(seq, tenant));
        self.put(Family::Index, &by_tenant, b"");
    }

    fn archived(&mut self, seq: u64, tenant: &str) {
        let value = [Self::size(seq, tenant), ord(tenant).to_be_bytes()].concat();
        self.put(Family::Index, &key(b'a', &[&seq.to_be_bytes()]), &value);
    }

    pub(crate) fn dump(&self) -> Dump {
        let rows = self
            .rows
            .iter()
            .map(|((family, key), value)| Row {
                family: *family,
                key: key.clone(),
                value: value.clone(),
            })
            .collect();
        Dump { rows, synced_through: 8, next_seq: 9 }
    }

    /// The verdict, as words.
    pub(crate) fn verdict(&self) -> Vec<String> {
        self.violations().iter().map(ToString::to_string).collect()
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        let dump = self.dump();
        let evidence = Evidence {
            requests: &self.requests,
            deliveries: &self.deliveries,
            dump: &dump,
            history: &self.history,
            moment: self.moment,
        };
        judge(&evidence)
    }

    /// The verdict on one invariant alone.
    pub(crate) fn verdict_on(&self, invariant: Invariant) -> Vec<String> {
        let code = format!("{}: ", invariant.code());
        self.verdict()
            .iter()
            .filter_map(|violation| violation.strip_prefix(&code))
            .map(str::to_owned)
            .collect()
    }
}
