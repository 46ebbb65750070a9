//! What the store holds, from a dump.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::delivery::{DeliveryRow, RowState};
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::invariants::{self, Dump};
use ankusa_actors::model::keys::{DeliveryKey, HookKey, is_sentinel};
use ankusa_actors::ports::{Direction, Engine, Scan};
use ankusa_node::rocks::{RocksEngine, RocksOptions};
use serde_json::Value;

use super::{TestNode, until};

/// Every row of a store.
pub struct Rows {
    pub rows: Vec<(Cf, Vec<u8>, Vec<u8>)>,
    /// The last line, which says that the dump is whole.
    pub end: Value,
}

impl Rows {
    /// Reads a dump, which must be whole.
    pub fn read(text: &str) -> Self {
        let mut lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let end = lines.pop().expect("a dump has a last line");
        assert_eq!(end["end"], true, "a dump that was cut short: {end}");
        let rows = lines.iter().map(|row| {
            let text = |key: &str| row[key].as_str().unwrap();
            let cf = Cf::ALL.into_iter().find(|cf| cf.name() == text("cf")).unwrap();
            (cf, unhex(text("key")), unhex(text("value")))
        });
        Self { rows: rows.collect(), end }
    }

    /// The hooks by their seqs.
    pub fn envelopes(&self) -> BTreeMap<u64, Envelope> {
        let hooks = self
            .rows
            .iter()
            .filter(|(cf, key, value)| *cf == Cf::Hooks && !is_sentinel(Cf::Hooks, key, value));
        let read = |key: &[u8], value: &[u8]| {
            (HookKey::decode(key).unwrap().0.0, Envelope::decode(value).unwrap())
        };
        hooks.map(|(_, key, value)| read(key, value)).collect()
    }

    /// The state of every delivery row, by seq and sink.
    pub fn deliveries(&self) -> BTreeMap<(u64, u16), RowState> {
        let rows = self.rows.iter().filter(|(cf, key, value)| {
            *cf == Cf::Deliveries && !is_sentinel(Cf::Deliveries, key, value)
        });
        let read = |key: &[u8], value: &[u8]| {
            let key = DeliveryKey::decode(key).unwrap();
            ((key.seq.0, key.sink), DeliveryRow::decode(value).unwrap().state)
        };
        rows.map(|(_, key, value)| read(key, value)).collect()
    }
}

impl TestNode {
    /// Every row, as the control socket tells them.
    pub async fn dump(&self) -> Rows {
        let answer = self.control("GET", "/v1/dump").await.unwrap();
        assert_eq!(answer.status, 200);
        Rows::read(&answer.text())
    }

    /// What the store holds is sound: rows, index keys and counters agree. A dump is read in pages, so it waits until two
    /// in a row are the same: the node is at rest.
    pub async fn assert_sound(&self) {
        let mut last = self.dump().await.rows;
        until("the node is at rest", async || {
            let before = std::mem::replace(&mut last, self.dump().await.rows);
            (before == last).then_some(())
        })
        .await;
        let rows = last.iter().map(|(cf, key, value)| (*cf, key, value));
        assert_eq!(invariants::check(&Dump::from_rows(rows)), []);
    }

    /// The store of a node that is not running is sound. A copy of it is read, so that it stays as it was left.
    pub async fn assert_left_sound(&self) {
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("default/store");
        copy_files(&self.path("data/default/store"), &path);
        let engine = RocksEngine::new(path, RocksOptions::default());
        let kv = engine.open().await.unwrap();
        let mut rows = Vec::new();
        for cf in Cf::ALL {
            let scan = Scan {
                cf,
                range: Vec::new()..vec![0xff; 64],
                direction: Direction::Forward,
                max_rows: usize::MAX,
                max_bytes: usize::MAX,
            };
            let page = kv.scan(scan).await.unwrap();
            rows.extend(page.pairs.into_iter().map(|(key, value)| (cf, key, value)));
        }
        engine.close(kv).await;
        assert_eq!(invariants::check(&Dump::from_rows(rows)), []);
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_files(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}
