//! The database on a simulated disk.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::disk::{Family, Image, SimDisk};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;
use crate::ports::{
    Damaged, Direction, DiskRoom, Engine, Kv, KvError, Lane, Look, Moment, OpenError, Page, Scan,
    StoreStats, Verified,
};

/// Opens databases on one disk.
#[derive(Clone, Debug)]
pub struct SimEngine {
    disk: Arc<SimDisk>,
}

impl SimEngine {
    pub fn on(disk: &Arc<SimDisk>) -> Self {
        Self { disk: Arc::clone(disk) }
    }
}

#[async_trait]
impl Engine for SimEngine {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError> {
        match self.disk.open().await {
            Ok(open) => Ok(Box::new(SimKv { disk: Arc::clone(&self.disk), open })),
            Err(KvError { class, op: _, detail }) => {
                Err(OpenError { path: PathBuf::from("sim/store"), class, detail })
            }
        }
    }

    async fn close(&self, kv: Box<dyn Kv>) {
        tokio::task::yield_now().await;
        drop(kv);
    }

    async fn probe_disk(&self) -> Result<(), KvError> {
        self.disk.probe().await
    }

    async fn room(&self) -> Result<DiskRoom, KvError> {
        Ok(self.disk.room())
    }

    async fn set_reserve(&self, bytes: u64) -> Result<(), KvError> {
        self.disk.set_reserve(bytes)
    }
}

/// An open database on a simulated disk. Dropping it closes it.
#[derive(Debug)]
pub struct SimKv {
    disk: Arc<SimDisk>,
    open: u64,
}

impl Drop for SimKv {
    fn drop(&mut self) {
        self.disk.release(self.open);
    }
}

#[async_trait]
impl Kv for SimKv {
    async fn apply(&self, batch: Batch, lane: Lane) -> Result<(), KvError> {
        self.disk.apply(self.open, batch, lane).await
    }

    async fn sync(&self) -> Result<(), KvError> {
        self.disk.sync(self.open).await
    }

    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.disk.read(self.open, "get", |image| image.family(cf).get(key).cloned())
    }

    async fn multi_get(&self, cf: Cf, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        self.disk.pass_read().await;
        self.disk.read(self.open, "multi_get", |image| {
            keys.iter().map(|key| image.family(cf).get(key).cloned()).collect()
        })
    }

    async fn scan(&self, scan: Scan) -> Result<Page, KvError> {
        self.disk.pass_read().await;
        self.disk.read(self.open, "scan", |image| page(image.family(scan.cf), &scan))
    }

    async fn verify(&self, cf: Cf, from: Vec<u8>, max_bytes: u64) -> Result<Verified, KvError> {
        self.disk.pass_read().await;
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let (range, direction) = (from.clone()..vec![0xff; 64], Direction::Forward);
        let scan = Scan { cf, range, direction, max_rows: usize::MAX, max_bytes };
        match self.disk.read(self.open, "verify", |image| page(image.family(cf), &scan)) {
            Ok(Page { pairs, more }) => {
                let len = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
                let bytes = pairs.iter().map(|(key, value)| len(key.len() + value.len())).sum();
                let last = pairs.last().filter(|_| more);
                let next = last.map(|(key, _)| [key.as_slice(), &[0]].concat());
                Ok(Verified { rows: len(pairs.len()), bytes, next, damage: None })
            }
            // The rest of the family is in the damaged file.
            Err(error) if error.class == FailureClass::Corruption => {
                let file = Some(format!("{}.sst", cf.name()));
                let damage = Some(Damaged { file, detail: error.detail });
                Ok(Verified { damage, ..Verified::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// Others get to write between the moment and the look at it.
    async fn at_one_moment(&self, look: Look) -> Result<(), KvError> {
        let image = self.disk.read(self.open, "snapshot", Image::clone)?;
        self.disk.pass_read().await;
        look(&SimMoment { disk: &self.disk, open: self.open, image })
    }

    async fn stats(&self) -> Result<StoreStats, KvError> {
        self.disk.pass_read().await;
        self.disk.read(self.open, "stats", |image| {
            let rows = |cf| u64::try_from(image.family(cf).len()).unwrap_or(u64::MAX);
            let bytes = |(key, value): (&Vec<u8>, &Vec<u8>)| key.len() + value.len();
            let disk_bytes: usize =
                Cf::ALL.iter().flat_map(|cf| image.family(*cf)).map(bytes).sum();
            StoreStats {
                hooks: rows(Cf::Hooks),
                deliveries: rows(Cf::Deliveries),
                disk_bytes: u64::try_from(disk_bytes).unwrap_or(u64::MAX),
                ..StoreStats::default()
            }
        })
    }
}

/// A copy. Its reads fail as any read of the database does.
struct SimMoment<'a> {
    disk: &'a SimDisk,
    open: u64,
    image: Image,
}

impl Moment for SimMoment<'_> {
    fn scan(&self, scan: Scan) -> Result<Page, KvError> {
        self.disk.read(self.open, "scan", |_now| page(self.image.family(scan.cf), &scan))
    }

    fn multi_get(&self, cf: Cf, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        let family = self.image.family(cf);
        self.disk.read(self.open, "multi_get", |_now| {
            keys.iter().map(|key| family.get(key).cloned()).collect()
        })
    }
}

fn page(family: &Family, scan: &Scan) -> Page {
    if scan.range.start >= scan.range.end {
        return Page::default();
    }
    let rows = family.range(scan.range.clone());
    match scan.direction {
        Direction::Forward => fill(rows, scan),
        Direction::Reverse => fill(rows.rev(), scan),
    }
}

fn fill<'a>(rows: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>, scan: &Scan) -> Page {
    let mut page = Page::default();
    let mut bytes = 0;
    for (key, value) in rows {
        let full = !page.pairs.is_empty() && bytes >= scan.max_bytes;
        if full || page.pairs.len() >= scan.max_rows {
            page.more = true;
            break;
        }
        bytes += key.len() + value.len();
        page.pairs.push((key.clone(), value.clone()));
    }
    page
}
