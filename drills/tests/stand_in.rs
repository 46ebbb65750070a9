//! The whole instrument of the recorded drills on a stand-in: a program of a hundred lines that commits hooks the documented
//! way over RocksDB, and the same program with one rule broken. The drill must pass the first and catch the others.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use ankusa_drills::journal::Event;
use ankusa_drills::load::LoadPlan;
use ankusa_drills::node::store_below;
use ankusa_drills::recorded::images::{self, NAME_RULE, Outcome, Recording, What};
use ankusa_drills::recorded::recorder::Recorder;
use ankusa_drills::recorded::timeline::{Past, Timeline};
use ankusa_drills::scratch::Scratch;
use ankusa_drills_check::{Delivery, Digest, Family, Invariant, SeqHistory, merge};
use ankusa_drills_replay::{Disk, Policy, decode};
use rocksdb::{ColumnFamilyDescriptor, DB, Options, WriteBatch};

const PLAN: LoadPlan = LoadPlan::new(11);
const HOOKS: u64 = 63;
const AT_MS: u64 = 1_688_169_000_086;

/// How the stand-in breaks the protocol.
const RIGHT: &str = "right";
const ACK_BEFORE_SYNC: &str = "ack before sync";
const ACK_BEFORE_APPLY: &str = "ack before apply";
const DELETE_BEFORE_SEND: &str = "delete before send";
const SPLIT_BATCH: &str = "split batch";

fn id(number: u64) -> String {
    format!("01890a5d-ac96-774b-bcce-{number:012}")
}

fn ord(tenant: &str) -> u32 {
    match tenant {
        "acme" => 1,
        "globex" => 2,
        _ => 3,
    }
}

fn atom(name: &str) -> Vec<u8> {
    [&[119, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat()
}

fn binary(bytes: &[u8]) -> Vec<u8> {
    [&[109], u32::try_from(bytes.len()).unwrap().to_be_bytes().as_slice(), bytes].concat()
}

fn int(value: i64) -> Vec<u8> {
    [&[110, 8, u8::from(value < 0)], value.unsigned_abs().to_le_bytes().as_slice()].concat()
}

fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let pairs_bytes: Vec<u8> =
        pairs.iter().flat_map(|(key, value)| [atom(key), value.clone()].concat()).collect();
    [&[131, 116], u32::try_from(pairs.len()).unwrap().to_be_bytes().as_slice(), &pairs_bytes]
        .concat()
}

fn envelope(number: u64) -> Vec<u8> {
    let (body, source) = (PLAN.body(number), PLAN.source(number));
    map(&[
        ("body", binary(&body)),
        ("id", binary(id(number).as_bytes())),
        ("size", int(i64::try_from(body.len()).unwrap())),
        ("source_id", binary(source.id.as_bytes())),
        ("tenant_id", binary(source.tenant.as_bytes())),
    ])
}

/// The stand-in at work.
struct StandIn {
    database: DB,
    mark: File,
    how: String,
}

impl StandIn {
    fn open(root: &Path, mark: &Path, how: String) -> Self {
        let store = store_below(root);
        std::fs::create_dir_all(&store).unwrap();
        // RocksDB syncs its own directory; the way to it is ours to sync.
        for directory in [root, &root.join("default")] {
            File::open(directory).unwrap().sync_all().unwrap();
        }
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        // Small, so that a run sees flushes and compactions too.
        options.set_write_buffer_size(64 << 10);
        let families = Family::ALL.map(|family| {
            let mut options = options.clone();
            options.set_merge_operator(
                merge::OPERATOR_NAME,
                |_, old, operands| merge::fold(old, operands.iter()),
                |_, _, _| None,
            );
            ColumnFamilyDescriptor::new(family.name(), options)
        });
        let database = DB::open_cf_descriptors(&options, &store, families).unwrap();
        Self { database, mark: File::create(mark).unwrap(), how }
    }

    fn say(&mut self, event: &Event) {
        self.mark.write_all(event.to_mark().as_bytes()).unwrap();
    }

    fn ack(&mut self, numbers: &[u64]) {
        for number in numbers {
            let outcome = ankusa_drills_check::Outcome::Acked { id: id(*number) };
            self.say(&Event::Answered { number: *number, outcome });
        }
    }

    fn put(&self, batch: &mut WriteBatch, family: Family, key: &[u8], value: &[u8]) {
        batch.put_cf(self.database.cf_handle(family.name()).unwrap(), key, value);
    }

    fn delete(&self, batch: &mut WriteBatch, family: Family, key: &[u8]) {
        batch.delete_cf(self.database.cf_handle(family.name()).unwrap(), key);
    }

    fn count(&self, batch: &mut WriteBatch, number: u64, by: i64) {
        let size = i64::try_from(envelope(number).len()).unwrap();
        for ord in [0, ord(PLAN.source(number).tenant)] {
            for (field, delta) in [(1, by), (5, by * size)] {
                let key = [ord.to_be_bytes().as_slice(), &[field]].concat();
                let operand = [b"\x83\x68\x02\x77\x07int_add".as_slice(), &int(delta)].concat();
                batch.merge_cf(self.database.cf_handle("counters").unwrap(), key, operand);
            }
        }
    }

    /// Hooks are numbered from 0, their seqs from 1.
    fn keys(number: u64) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let hook = (number + 1).to_be_bytes().to_vec();
        let row = [hook.as_slice(), &[0, 0]].concat();
        let due = [
            b"D".as_slice(),
            &ord(PLAN.source(number).tenant).to_be_bytes(),
            &AT_MS.to_be_bytes(),
            &row,
        ]
        .concat();
        (hook, row, due)
    }

    fn commit(&mut self, numbers: &[u64]) {
        let mut batch = WriteBatch::default();
        for number in numbers {
            let value = envelope(*number);
            let size = u32::try_from(value.len()).unwrap();
            let (hook, row, due) = Self::keys(*number);
            let delivery = map(&[
                ("at", int(i64::try_from(AT_MS).unwrap())),
                ("size", int(size.into())),
                ("state", atom("pending")),
            ]);
            let tenant = PLAN.source(*number).tenant;
            let ord = ord(tenant).to_be_bytes();
            self.put(&mut batch, Family::Hooks, &hook, &value);
            self.put(&mut batch, Family::Deliveries, &row, &delivery);
            if self.how == SPLIT_BATCH {
                self.database.write(std::mem::take(&mut batch)).unwrap();
            }
            self.put(
                &mut batch,
                Family::Index,
                &due,
                &[size.to_be_bytes().as_slice(), &[0]].concat(),
            );
            self.put(
                &mut batch,
                Family::Index,
                &[b"A".as_slice(), &(AT_MS / 1000).to_be_bytes(), &ord].concat(),
                b"",
            );
            self.put(
                &mut batch,
                Family::Tenants,
                &[b"t".as_slice(), &ord].concat(),
                tenant.as_bytes(),
            );
            self.put(&mut batch, Family::Tenants, &[b"n", tenant.as_bytes()].concat(), &ord);
            self.put(&mut batch, Family::Default, b"m:next_seq", &(number + 2).to_be_bytes());
            self.count(&mut batch, *number, 1);
        }
        if self.how == ACK_BEFORE_APPLY {
            self.ack(numbers);
        }
        self.database.write(batch).unwrap();
        if self.how == ACK_BEFORE_SYNC {
            self.ack(numbers);
        }
        self.database.flush_wal(true).unwrap();
        if ![ACK_BEFORE_APPLY, ACK_BEFORE_SYNC].contains(&self.how.as_str()) {
            self.ack(numbers);
        }
    }

    fn deliver(&mut self, number: u64) {
        let seen = Event::Seen(Delivery {
            id: id(number),
            body: Digest::of(&PLAN.body(number)),
            attempt: 1,
            accepted: true,
        });
        let mut batch = WriteBatch::default();
        let (hook, row, due) = Self::keys(number);
        self.delete(&mut batch, Family::Hooks, &hook);
        self.delete(&mut batch, Family::Deliveries, &row);
        self.delete(&mut batch, Family::Index, &due);
        self.count(&mut batch, number, -1);
        if self.how == DELETE_BEFORE_SEND {
            self.database.write(batch).unwrap();
            self.say(&seen);
        } else {
            self.say(&seen);
            self.database.write(batch).unwrap();
        }
    }
}

#[test]
fn child_commits_and_delivers() {
    let Some(how) = std::env::var_os("STAND_IN") else { return };
    let variable = |name| std::path::PathBuf::from(std::env::var_os(name).unwrap());
    let mut stand_in =
        StandIn::open(&variable("DRILL_ROOT"), &variable("DRILL_MARK"), how.into_string().unwrap());
    let numbers: Vec<u64> = (0..HOOKS).collect();
    for (index, group) in numbers.chunks(5).enumerate() {
        stand_in.commit(group);
        if index % 2 == 1 {
            group.iter().take(3).for_each(|number| stand_in.deliver(*number));
        }
    }
}

/// Every shape but reordered pages.
const PLAIN: [Policy; 4] =
    [Policy::DropUnsynced, Policy::KeepAll, Policy::Torn512, Policy::ZeroTail];

fn drill(how: &str) -> Outcome {
    drill_with(how, &PLAIN, 1)
}

/// Records the stand-in, cuts its disk at every operation, and judges every image.
fn drill_with(how: &str, policies: &[Policy], draws: u64) -> Outcome {
    let scratch = Scratch::in_memory().unwrap();
    let recorder = Recorder::new(&scratch).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_commits_and_delivers", "--test-threads=1"])
        .env("STAND_IN", how)
        .envs(recorder.environment())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = recorder.read_log().unwrap();
    let ops = decode(&log).unwrap();
    let timeline = Timeline::new(&ops, PLAN, 0..HOOKS, Past::default());
    let base = Disk::new(&recorder.root().display().to_string(), NAME_RULE);
    let recording = Recording {
        base: &base,
        ops: &ops,
        timeline: &timeline,
        history: &SeqHistory::default(),
        seed: 3,
        policies,
        draws,
    };
    images::judge_all(recording, timeline.cuts(), &scratch).unwrap()
}

/// Which invariants were violated, and how many images could not be read.
fn found(outcome: &Outcome) -> (BTreeSet<Invariant>, usize) {
    let (mut violated, mut unreadable) = (BTreeSet::new(), 0);
    for finding in &outcome.findings {
        match &finding.what {
            What::Broken(broken) | What::Stalled(broken) => violated.extend(broken.invariants()),
            What::Unreadable(_) => unreadable += 1,
        }
    }
    (violated, unreadable)
}

#[test]
fn a_stand_in_that_keeps_the_protocol_passes_at_every_cut() {
    let outcome = drill(RIGHT);
    assert!(
        outcome.findings.is_empty(),
        "{:#?}",
        outcome.findings.iter().take(5).collect::<Vec<_>>()
    );
    // Not vacuous: many different images under each policy.
    assert!(outcome.images.values().all(|images| *images > 60), "{:?}", outcome.images);
    assert!(outcome.opened > 300, "{}", outcome.opened);
}

#[test]
fn an_ack_before_the_fsync_is_caught() {
    assert_eq!(found(&drill(ACK_BEFORE_SYNC)), (BTreeSet::from([Invariant::AckedIsKept]), 0));
}

#[test]
fn an_ack_before_the_write_is_caught() {
    assert_eq!(found(&drill(ACK_BEFORE_APPLY)), (BTreeSet::from([Invariant::AckedIsKept]), 0));
}

#[test]
fn reordered_pages_lose_nothing_synced_and_damage_some_logs_in_their_middle() {
    let outcome = drill_with(RIGHT, &[Policy::PageReorder], 3);
    assert!(outcome.findings.is_empty(), "{:#?}", outcome.findings.first());
    assert!(!outcome.damaged.is_empty() && outcome.images["page-reorder"] > 180);
    let early = drill_with(ACK_BEFORE_SYNC, &[Policy::PageReorder], 3);
    assert_eq!(found(&early), (BTreeSet::from([Invariant::AckedIsKept]), 0));
}

#[test]
fn a_kill_at_every_operation_catches_what_a_kill_can_leave_and_not_a_missing_fsync() {
    let violated = |how| found(&drill_with(how, &[Policy::KeepAll], 1)).0;
    assert_eq!(violated(RIGHT), BTreeSet::new());
    assert_eq!(violated(ACK_BEFORE_SYNC), BTreeSet::new());
    assert_eq!(violated(DELETE_BEFORE_SEND), BTreeSet::from([Invariant::AckedIsKept]));
    assert!(violated(SPLIT_BATCH).contains(&Invariant::RowsFitTogether));
}

#[test]
fn a_hook_deleted_before_it_is_sent_is_caught() {
    assert_eq!(found(&drill(DELETE_BEFORE_SEND)), (BTreeSet::from([Invariant::AckedIsKept]), 0));
}

#[test]
fn a_commit_in_two_batches_is_caught() {
    let (violated, _) = found(&drill(SPLIT_BATCH));
    assert!(violated.contains(&Invariant::RowsFitTogether), "{violated:?}");
}
