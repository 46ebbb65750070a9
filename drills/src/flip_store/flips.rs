//! Which bits are flipped: the plan follows from the seed and the stores.

use ankusa_drills_replay::Rng;

use super::rest::AtRest;

const BLOCK_BYTES: usize = 32_768;
const HEADER_BYTES: usize = 7;

/// The files that are flipped at random, by how their names begin or end.
const KINDS: [&str; 5] = [".sst", ".log", "MANIFEST", "CURRENT", "SEAL"];

/// What is done to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    Flip {
        store: usize,
        file: String,
        byte: usize,
        bit: u8,
        in_a_header: bool,
    },
    /// The store whose manifest RocksDB reads for ever.
    HangingManifest,
    /// A pipe nobody writes to in the place of the log.
    UnreadableLog,
}

impl Damage {
    /// Its row in the table of fates.
    pub(super) fn kind(&self) -> String {
        match self {
            Self::Flip { file, in_a_header, .. } => {
                let kind = KINDS.into_iter().find(|kind| is_of(file, kind)).unwrap_or("other");
                let headers = if *in_a_header { " headers" } else { "" };
                format!("{}{headers}", kind.trim_start_matches('.'))
            }
            Self::HangingManifest => "hanging manifest".to_owned(),
            Self::UnreadableLog => "unreadable log".to_owned(),
        }
    }

    /// Where it is done, to find it again.
    pub(super) fn place(&self, stores: &[AtRest]) -> String {
        match self {
            Self::Flip { store, file, byte, bit, .. } => {
                let store = stores.get(*store).map_or("?", |store| store.name);
                format!("{store} {file} byte {byte} bit {bit}")
            }
            Self::HangingManifest | Self::UnreadableLog => self.kind(),
        }
    }
}

fn is_of(file: &str, kind: &str) -> bool {
    if kind.starts_with('.') { file.ends_with(kind) } else { file.starts_with(kind) }
}

/// A bit of every byte of every `stride`th header of the logs and manifests.
pub(super) fn headers(stores: &[AtRest], stride: usize, rng: &mut Rng) -> Vec<Damage> {
    let mut plan = Vec::new();
    for (store, at_rest) in stores.iter().enumerate() {
        for (file, bytes) in &at_rest.files {
            if !is_of(file, ".log") && !is_of(file, "MANIFEST") {
                continue;
            }
            for start in header_starts(bytes).into_iter().step_by(stride.max(1)) {
                for byte in start..start + HEADER_BYTES {
                    let bit = bit(rng);
                    plan.push(Damage::Flip {
                        store,
                        file: file.clone(),
                        byte,
                        bit,
                        in_a_header: true,
                    });
                }
            }
        }
    }
    plan
}

/// `count` bits of files of every kind in turn.
pub(super) fn at_random(stores: &[AtRest], count: u64, rng: &mut Rng) -> Vec<Damage> {
    let mut plan = Vec::new();
    let mut kinds = KINDS.into_iter().cycle();
    for n in 0..count {
        let store = usize::try_from(n).unwrap_or(0) % stores.len().max(1);
        let Some((at_rest, kind)) = stores.get(store).zip(kinds.next()) else { break };
        let files: Vec<(&String, &Vec<u8>)> = at_rest
            .files
            .iter()
            .filter(|(file, bytes)| is_of(file, kind) && !bytes.is_empty())
            .collect();
        let picked = files.get(rng.up_to(files.len().saturating_sub(1)));
        if let Some((file, bytes)) = picked {
            let byte = rng.up_to(bytes.len() - 1);
            let (file, bit) = ((*file).clone(), bit(rng));
            plan.push(Damage::Flip { store, file, byte, bit, in_a_header: false });
        }
    }
    plan
}

fn bit(rng: &mut Rng) -> u8 {
    u8::try_from(rng.below(8)).unwrap_or(0)
}

/// Where the headers of a log file begin, read as the format has it: none crosses a block of 32 KiB.
fn header_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some([_, _, _, _, low, high, _]) = bytes.get(at..at + HEADER_BYTES) {
        if BLOCK_BYTES - at % BLOCK_BYTES < HEADER_BYTES {
            at += BLOCK_BYTES - at % BLOCK_BYTES;
            continue;
        }
        starts.push(at);
        at += HEADER_BYTES + usize::from(u16::from_le_bytes([*low, *high]));
    }
    starts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ankusa_drills_check::Dump;

    use super::*;

    /// A log of two records, one of which goes on in the next block behind six bytes of nothing.
    fn log() -> Vec<u8> {
        let mut bytes = Vec::new();
        for length in [3_u16, 32_768 - 10 - 7 - 6, 5] {
            let at = bytes.len() % BLOCK_BYTES;
            if BLOCK_BYTES - at < HEADER_BYTES {
                bytes.resize(bytes.len() + BLOCK_BYTES - at, 0);
            }
            bytes.extend_from_slice(&[1, 1, 1, 1]);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.push(1);
            bytes.resize(bytes.len() + usize::from(length), 9);
        }
        bytes
    }

    fn stores() -> Vec<AtRest> {
        let file = |name: &str, bytes: Vec<u8>| (name.to_owned(), bytes);
        let files = BTreeMap::from([
            file("000009.log", log()),
            file("000010.sst", vec![1; 100]),
            file("CURRENT", vec![1; 16]),
            file("MANIFEST-000011", vec![0; 5]),
            file("SEAL", vec![1; 50]),
        ]);
        vec![AtRest { name: "a", files, dump: Dump::default() }]
    }

    #[test]
    fn every_byte_of_every_header_is_flipped_once() {
        assert_eq!(header_starts(&log()), [0, 10, 32_768]);
        let plan = headers(&stores(), 1, &mut Rng::new(7));
        let bytes = plan.iter().map(|damage| {
            let Damage::Flip { byte, in_a_header: true, .. } = damage else { panic!("{damage:?}") };
            *byte
        });
        let bytes: Vec<usize> = bytes.collect();
        let expected: Vec<usize> = [0..7, 10..17, 32_768..32_775].into_iter().flatten().collect();
        assert_eq!(bytes, expected);
        assert_eq!(headers(&stores(), 2, &mut Rng::new(7)).len(), 14);
    }

    #[test]
    fn the_same_seed_flips_the_same_bits_in_files_of_every_kind() {
        let plan = |seed| at_random(&stores(), 10, &mut Rng::new(seed));
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
        let kinds: Vec<String> = plan(7).iter().map(Damage::kind).collect();
        assert_eq!(kinds, ["sst", "log", "MANIFEST", "CURRENT", "SEAL"].repeat(2));
        let place = plan(7)[3].place(&stores());
        assert!(place.starts_with("a CURRENT byte "), "{place}");
    }
}
