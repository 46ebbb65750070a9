//! What is checked before and after RocksDB opens a store: the seal, and the end of the log. On files that the real
//! RocksDB has written, damaged afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::keys::{META_NEXT_SEQ, META_SYNCED_THROUGH, read_u64, u64_value};
use ankusa_actors::ports::{Engine, Kv, Lane, OpenReport};
use ankusa_node::rocks::{RocksEngine, RocksOptions};
use tempfile::TempDir;

/// How a process leaves its store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Closed,
    Killed,
}

struct Store {
    engine: RocksEngine,
    _dir: TempDir,
}

impl Store {
    /// A store with these groups of one hook each in its log; each says it was built when so many seqs were synced.
    async fn of(synced_through: &[u64], end: End) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = RocksEngine::new(dir.path().join("store"), RocksOptions::default());
        let store = Self { engine, _dir: dir };
        let kv = store.engine.open().await.unwrap();
        for (n, synced) in synced_through.iter().enumerate() {
            store.group(&*kv, n as u64 + 1, *synced).await;
        }
        store.end(kv, end).await;
        store
    }

    async fn group(&self, kv: &dyn Kv, seq: u64, synced_through: u64) {
        let mut batch = Batch::default();
        batch.put(Cf::Hooks, &seq.to_be_bytes(), &[b'v'; 200]);
        batch.put(Cf::Default, META_NEXT_SEQ, &u64_value(seq + 1));
        batch.put(Cf::Default, META_SYNCED_THROUGH, &u64_value(synced_through));
        kv.apply(batch, Lane::Commit).await.unwrap();
        kv.sync().await.unwrap();
    }

    async fn end(&self, kv: Box<dyn Kv>, end: End) {
        match end {
            End::Closed => self.engine.close(kv).await,
            End::Killed => drop(kv),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.engine.path().join(name)
    }

    /// The names of its files that begin and end so, in order.
    fn names(&self, begin: &str, end: &str) -> Vec<String> {
        let entries = fs::read_dir(self.engine.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> =
            names.filter(|name| name.starts_with(begin) && name.ends_with(end)).collect();
        names.sort();
        names
    }

    fn wal(&self) -> PathBuf {
        self.path(&self.names("", ".log").pop().unwrap())
    }

    fn manifest(&self) -> PathBuf {
        self.path(fs::read_to_string(self.path("CURRENT")).unwrap().trim_end())
    }

    /// Every file but what RocksDB writes about itself, with its bytes.
    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let names = self.names("", "").into_iter();
        let names = names.filter(|name| !name.starts_with("LOG") && name != "LOCK");
        let files = names.filter(|name| self.path(name).is_file());
        files.map(|name| (name.clone(), fs::read(self.path(&name)).unwrap())).collect()
    }

    /// Why it does not open. A refusal leaves everything as it was.
    async fn refusal(&self) -> String {
        let before = self.contents();
        let refused = match self.engine.open().await {
            Ok(_kv) => panic!("the store opened"),
            Err(refused) => refused,
        };
        assert_eq!((refused.class, &*refused.path), (FailureClass::Corruption, self.engine.path()));
        assert!(self.contents() == before, "a refusal changed the store");
        refused.detail.replace(&format!("{}/", self.engine.path().display()), "")
    }

    /// The seqs that are there, the next one, and what was said of the open.
    async fn opened(&self) -> (Vec<u64>, u64, OpenReport) {
        let kv = self.engine.open().await.unwrap();
        let mut seqs = Vec::new();
        for seq in 1..100_u64 {
            if kv.get(Cf::Hooks, &seq.to_be_bytes()).unwrap().is_some() {
                seqs.push(seq);
            }
        }
        let next = kv.get(Cf::Default, META_NEXT_SEQ).unwrap();
        let next_seq = next.map_or(1, |next| read_u64(&next).unwrap());
        drop(kv);
        (seqs, next_seq, self.engine.last_open())
    }
}

/// Changes the bytes of a file.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Where each record of a log file begins; none of them is longer than a block.
fn records(path: &Path) -> Vec<usize> {
    let bytes = fs::read(path).unwrap();
    let mut starts = Vec::new();
    let mut at = 0;
    while at + 7 <= bytes.len() {
        starts.push(at);
        at += 7 + usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
    }
    starts
}

#[tokio::test]
async fn a_store_is_sealed_by_its_open_and_again_by_its_close() {
    let store = Store::of(&[0, 1], End::Killed).await;
    let seal = || fs::read_to_string(store.path("SEAL")).unwrap();
    let manifest = store.manifest();
    let named = format!("manifest {}\n", manifest.file_name().unwrap().to_str().unwrap());
    assert!(seal().contains(&named), "{}", seal());
    assert!(seal().contains("next_seq 1\n") && !seal().contains("closed"), "{}", seal());
    let (seqs, next_seq, report) = store.opened().await;
    assert_eq!((seqs, next_seq, report), (vec![1, 2], 3, OpenReport::default()));
    let kv = store.engine.open().await.unwrap();
    store.group(&*kv, 3, 2).await;
    store.end(kv, End::Closed).await;
    let said = seal();
    for line in
        ["next_seq 4\n", "rows.hooks 1\n", "rows.default 2\n", "rows.index 0\n", "closed cleanly\n"]
    {
        assert!(said.contains(line), "{line} in {said}");
    }
    let (seqs, next_seq, report) = store.opened().await;
    assert_eq!((seqs, next_seq), (vec![1, 2, 3], 4));
    assert_eq!(report, OpenReport { closed_cleanly: true, cut: None });
    // Opened, and not closed again.
    assert!(!store.opened().await.2.closed_cleanly);
    assert_eq!(store.names("SEAL", ""), ["SEAL"]);
}

#[tokio::test]
async fn a_store_without_a_seal_opens_and_gets_one() {
    let store = Store::of(&[0, 1], End::Killed).await;
    fs::remove_file(store.path("SEAL")).unwrap();
    assert_eq!(store.opened().await.0, [1, 2]);
    assert!(store.path("SEAL").exists());
}

#[tokio::test]
async fn a_damaged_seal_refuses_and_says_the_way_out() {
    let store = Store::of(&[0, 1], End::Closed).await;
    edit(&store.path("SEAL"), |bytes| bytes[20] ^= 1);
    let why = store.refusal().await;
    assert!(why.starts_with("SEAL is damaged") && why.contains("remove the file SEAL"), "{why}");
    fs::remove_file(store.path("SEAL")).unwrap();
    assert_eq!(store.opened().await.0, [1, 2]);
}

#[tokio::test]
async fn no_flipped_bit_of_a_sealed_manifest_is_opened() {
    for end in [End::Closed, End::Killed] {
        let store = Store::of(&[0, 1], end).await;
        let manifest = store.manifest();
        let whole = fs::read(&manifest).unwrap();
        // Every header, and what is between them by the way.
        let starts = records(&manifest);
        let headers = starts.iter().flat_map(|start| (0..7).map(move |byte| start + byte));
        for (n, byte) in headers.chain((0..whole.len()).step_by(17)).enumerate() {
            edit(&manifest, |bytes| bytes[byte] ^= 1 << (n % 8));
            let why = store.refusal().await;
            assert!(why.contains("are not those that were sealed"), "byte {byte}: {why}");
            fs::write(&manifest, &whole).unwrap();
        }
        for len in [0, 1, whole.len() - 1] {
            fs::write(&manifest, &whole[..len]).unwrap();
            let why = store.refusal().await;
            assert!(why.contains("bytes of the"), "{len} bytes: {why}");
        }
        fs::write(&manifest, &whole).unwrap();
        assert_eq!(store.opened().await.0, [1, 2]);
    }
}

#[tokio::test]
async fn a_manifest_without_a_seal_that_has_whole_records_behind_its_damage_is_refused() {
    let store = Store::of(&[0, 1], End::Killed).await;
    fs::remove_file(store.path("SEAL")).unwrap();
    let manifest = store.manifest();
    let whole = fs::read(&manifest).unwrap();
    let starts = records(&manifest);
    for (n, start) in starts.iter().enumerate().take(starts.len() - 1) {
        for byte in 0..7 {
            edit(&manifest, |bytes| bytes[start + byte] ^= 1 << (n % 8));
            let why = store.refusal().await;
            assert!(why.ends_with("records behind it are whole"), "{start}+{byte}: {why}");
            fs::write(&manifest, &whole).unwrap();
        }
    }
    assert_eq!(store.opened().await.0, [1, 2]);
}

#[tokio::test]
async fn what_an_interrupted_open_leaves_is_opened() {
    let store = Store::of(&[0, 1], End::Closed).await;
    let seal = fs::read(store.path("SEAL")).unwrap();
    assert_eq!(store.opened().await.0, [1, 2]);
    // The power was cut after the new manifest and before the new seal: the sealed one is gone.
    fs::write(store.path("SEAL"), &seal).unwrap();
    let (seqs, next_seq, report) = store.opened().await;
    // The seal's word about the close is void: something has been written since.
    assert_eq!((seqs, next_seq, report.closed_cleanly), (vec![1, 2], 3, false));
    // A temporary seal that was never renamed.
    fs::write(store.path("SEAL.tmp"), b"half a se").unwrap();
    assert_eq!(store.opened().await.0, [1, 2]);
}

#[tokio::test]
async fn an_older_manifest_or_a_lower_next_seq_than_the_sealed_one_is_refused() {
    let old = Store::of(&[0, 1], End::Killed).await;
    let new = Store::of(&[0, 1], End::Killed).await;
    for _ in 0..3 {
        new.opened().await;
    }
    // The files of the older database under the newer one's seal.
    fs::copy(new.path("SEAL"), old.path("SEAL")).unwrap();
    let why = old.refusal().await;
    assert!(why.contains("which is newer"), "{why}");
    // An empty database, opened so often that its manifest is the newer one.
    let empty = Store::of(&[], End::Killed).await;
    for _ in 0..6 {
        empty.opened().await;
    }
    fs::copy(new.path("SEAL"), empty.path("SEAL")).unwrap();
    let Err(refused) = empty.engine.open().await else { panic!("the store opened") };
    let why = "the next seq is 1, and it was 3 before: hooks are missing";
    assert_eq!((refused.class, &*refused.detail), (FailureClass::Corruption, why));
}

#[tokio::test]
async fn a_database_that_has_lost_its_current_is_no_new_store() {
    let store = Store::of(&[0], End::Closed).await;
    for name in store.names("", "") {
        if name != "SEAL" {
            fs::remove_file(store.path(&name)).unwrap();
        }
    }
    let why = store.refusal().await;
    assert!(why.starts_with("CURRENT is missing, yet SEAL names MANIFEST-0"), "{why}");
    let store = Store::of(&[0], End::Closed).await;
    fs::write(store.path("CURRENT"), b"MANIFEST-00000x\n").unwrap();
    assert_eq!(store.refusal().await, "CURRENT is damaged: it names no manifest");
}

#[tokio::test]
async fn a_log_that_was_closed_cleanly_and_ends_early_is_refused() {
    let store = Store::of(&[0, 1, 2], End::Closed).await;
    let wal = store.wal();
    let whole = fs::read(&wal).unwrap();
    let starts = records(&wal);
    // Also where a whole record ends, which alone looks like any log.
    for len in [starts[2], starts[2] + 3, whole.len() - 1] {
        fs::write(&wal, &whole[..len]).unwrap();
        let why = store.refusal().await;
        assert!(why.contains("when the store was closed"), "{len} bytes: {why}");
    }
    let size = whole.len();
    edit(&wal, |bytes| bytes.clone_from(&whole));
    edit(&wal, |bytes| bytes[size - 1] ^= 1);
    assert!(store.refusal().await.contains("the store was closed cleanly"));
    fs::write(&wal, &whole).unwrap();
    assert_eq!(store.opened().await.0, [1, 2, 3]);
}

#[tokio::test]
async fn a_torn_tail_is_dropped_without_a_word() {
    let store = Store::of(&[0, 1, 2], End::Killed).await;
    let wal = OpenOptions::new().write(true).open(store.wal()).unwrap();
    wal.set_len(wal.metadata().unwrap().len() - 5).unwrap();
    assert_eq!(store.opened().await, (vec![1, 2], 3, OpenReport::default()));
    assert_eq!(store.names("cut-", ""), Vec::<String>::new());
}

#[tokio::test]
async fn pages_that_were_written_out_of_order_are_cut_off_kept_and_told() {
    // Four groups, none of which knows that another was synced.
    let store = Store::of(&[0, 0, 0, 0], End::Killed).await;
    let (wal, starts) = (store.wal(), records(&store.wal()));
    let file = wal.file_name().unwrap().to_str().unwrap().to_owned();
    edit(&wal, |bytes| bytes[starts[1]..starts[2]].fill(0));
    let damaged = fs::read(&wal).unwrap();
    let (seqs, next_seq, report) = store.opened().await;
    assert_eq!((seqs, next_seq), (vec![1], 2));
    let cut = report.cut.expect("something was cut");
    assert_eq!((&cut.file, cut.at_byte, cut.records), (&file, starts[1] as u64, 2));
    assert_eq!(cut.bytes, (damaged.len() - starts[1]) as u64);
    assert!(fs::read(cut.kept_in.join(&file)).unwrap() == damaged);
    for name in ["CURRENT", "SEAL"] {
        assert!(cut.kept_in.join(name).exists(), "{name}");
    }
    // And that was that.
    assert_eq!(store.opened().await, (vec![1], 2, OpenReport::default()));
}

#[tokio::test]
async fn rot_in_what_was_synced_is_refused_with_the_seqs() {
    let store = Store::of(&[0, 1, 2, 3], End::Killed).await;
    let (wal, starts) = (store.wal(), records(&store.wal()));
    let whole = fs::read(&wal).unwrap();
    let file = wal.file_name().unwrap().to_str().unwrap().to_owned();
    for (n, range) in starts.windows(2).enumerate().take(3) {
        for byte in (range[0]..range[1]).step_by(5).chain(range[0]..range[0] + 7) {
            edit(&wal, |bytes| bytes[byte] ^= 1 << (byte % 8));
            let why = store.refusal().await;
            let begins = format!("{file} is damaged at byte {}", range[0]);
            let ends = format!("acked hooks of the seqs {} to 3 are damaged", n + 1);
            assert!(why.starts_with(&begins) && why.ends_with(&ends), "byte {byte}: {why}");
            fs::write(&wal, &whole).unwrap();
        }
    }
    assert_eq!(store.opened().await.0, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_type_of_a_recycled_file_never_keeps_an_open_waiting() {
    for kind in [5_u8, 6, 7, 8, 11, 131] {
        let store = Store::of(&[0, 1, 2, 3], End::Killed).await;
        let (wal, starts) = (store.wal(), records(&store.wal()));
        edit(&wal, |bytes| bytes[starts[1] + 6] = kind);
        assert!(store.refusal().await.ends_with("acked hooks of the seqs 2 to 3 are damaged"));
        // In the last record it is what a power cut may have left there.
        let store = Store::of(&[0, 1, 2, 3], End::Killed).await;
        edit(&store.wal(), |bytes| bytes[starts[3] + 6] = kind);
        let (seqs, next_seq, report) = store.opened().await;
        assert_eq!((seqs, next_seq), (vec![1, 2, 3], 4));
        assert_eq!(report.cut.expect("something was cut").at_byte, starts[3] as u64);
    }
}

#[tokio::test]
async fn logs_that_are_in_tables_already_may_be_damaged() {
    let store = Store::of(&[0, 1], End::Killed).await;
    let older = (store.wal(), fs::read(store.wal()).unwrap());
    store.opened().await;
    // The open wrote it out and removed it; a cut may have left it there.
    fs::write(&older.0, &older.1[..older.1.len() / 2]).unwrap();
    assert_eq!(store.opened().await.0, [1, 2]);
}

#[tokio::test]
async fn a_scrub_names_the_damaged_file_and_goes_on_behind_it() {
    let store = Store::of(&[0, 1, 2], End::Killed).await;
    // The open writes the log into tables; another round of it makes a second table of hooks.
    let kv = store.engine.open().await.unwrap();
    store.group(&*kv, 4, 3).await;
    store.end(kv, End::Killed).await;
    store.opened().await;
    let kv = store.engine.open().await.unwrap();
    let whole = kv.verify(Cf::Hooks, Vec::new(), u64::MAX).await.unwrap();
    assert_eq!((whole.rows, whole.next, whole.damage), (4, None, None));
    let first = kv.verify(Cf::Hooks, Vec::new(), 1).await.unwrap();
    assert_eq!(first.rows, 1);
    let rest = kv.verify(Cf::Hooks, first.next.unwrap(), u64::MAX).await.unwrap();
    assert_eq!(rest.rows, 3);
    store.end(kv, End::Killed).await;

    // The table of the first three hooks; its first block begins the file.
    let tables = store.names("", ".sst");
    let hooks_of = |name: &&String| {
        let bytes = fs::read(store.path(name)).unwrap();
        bytes.windows(5).any(|window| window == b"hooks")
    };
    let first = tables.iter().find(hooks_of).unwrap();
    edit(&store.path(first), |bytes| bytes[10] ^= 1);
    let kv = store.engine.open().await.unwrap();
    let met = kv.verify(Cf::Hooks, Vec::new(), u64::MAX).await.unwrap();
    let damage = met.damage.expect("it is damaged");
    assert_eq!(damage.file.as_ref(), Some(first), "{}", damage.detail);
    let rest = kv.verify(Cf::Hooks, met.next.expect("there is more"), u64::MAX).await.unwrap();
    assert_eq!((rest.rows, rest.next, rest.damage), (1, None, None));
}

#[tokio::test]
async fn nothing_says_that_a_store_is_closed_while_it_is_being_opened() {
    let store = Store::of(&[0, 1], End::Killed).await;
    let kv = store.engine.open().await.unwrap();
    store.end(kv, End::Closed).await;
    let closed = fs::read_to_string(store.path("SEAL")).unwrap();
    assert!(closed.contains("closed cleanly\n"), "{closed}");
    // RocksDB itself refuses, behind what is checked before.
    let table = store.path(store.names("", ".sst").first().unwrap());
    let bytes = fs::read(&table).unwrap();
    fs::remove_file(&table).unwrap();
    assert!(store.engine.open().await.is_err());
    let seal = fs::read_to_string(store.path("SEAL")).unwrap();
    assert!(!seal.contains("closed"), "{seal}");
    fs::write(&table, bytes).unwrap();
    assert_eq!(store.opened().await, (vec![1, 2], 3, OpenReport::default()));
}
