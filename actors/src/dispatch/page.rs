//! How a claim is split across the tenants with work due. Pure ("Tenants, counters and the active index").

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Who has finished nothing for so long does not get on.
pub(super) const LATELY: Duration = Duration::from_secs(2);

/// Whether what last happened then shows that somebody gets on.
pub(super) fn is_lately(last: Option<Instant>, now: Instant) -> bool {
    last.is_some_and(|last| now.saturating_duration_since(last) < LATELY)
}

/// Of what others leave, what one may have, in percent.
///
/// One alone may have `share`. Where others are, so may who gets on, and anybody else `start` only: many whose sinks all
/// hang then leave a part each of what the one before has left, and together they do not have everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Percents {
    pub(super) share: u32,
    /// <= `share`.
    pub(super) start: u32,
}

impl Percents {
    pub(super) fn of(self, gets_on: bool, others: usize) -> u32 {
        if gets_on || others == 0 { self.share } else { self.start }
    }
}

/// What one tenant may still take of a bound, rows, bytes or slots, when it holds `held` of it and the others `others`:
/// its share of what the others leave, and the last of that too where the rest of it would be less than one. So however
/// much a tenant has waiting for a sink that hangs, there is room for the next tenant.
pub(super) fn window(max: usize, others: usize, held: usize, share_percent: u32) -> usize {
    let room = max.saturating_sub(others);
    let rest_percent = usize::try_from(100_u32.saturating_sub(share_percent)).unwrap_or(0);
    // Of bytes there are many: divided first where the product would not fit.
    let rest = room.checked_mul(rest_percent).map_or(room / 100 * rest_percent, |rest| rest / 100);
    (room - rest).saturating_sub(held)
}

/// One that takes part, and its weight.
#[derive(Debug)]
pub(super) struct Weighted<T> {
    pub(super) tenant: T,
    /// > 0.
    pub(super) weight: u32,
}

/// A page of rows shared out among tenants in rounds: of what is left a part each by weight, at least one row, and what
/// some leave goes to the others.
#[derive(Debug)]
pub(super) struct Page<T> {
    left: usize,
    /// Those whose turn in this round is still to come.
    round: VecDeque<Weighted<T>>,
    /// Their weights together.
    round_weight: u64,
    /// Those that have more.
    next_round: VecDeque<Weighted<T>>,
    is_first_round: bool,
}

impl<T> Page<T> {
    pub(super) fn new(rows: usize, tenants: impl IntoIterator<Item = Weighted<T>>) -> Self {
        let round: VecDeque<_> = tenants.into_iter().collect();
        let round_weight = sum(&round);
        let next_round = VecDeque::new();
        Self { left: rows, round, round_weight, next_round, is_first_round: true }
    }

    /// Whose turn it is, and how many rows it may take.
    pub(super) fn next(&mut self) -> Option<(Weighted<T>, usize)> {
        if self.left == 0 {
            return None;
        }
        if self.round.is_empty() {
            self.round = std::mem::take(&mut self.next_round);
            self.round_weight = sum(&self.round);
            self.is_first_round = false;
        }
        let next = self.round.pop_front()?;
        let left = u64::try_from(self.left).unwrap_or(u64::MAX);
        let share = left.saturating_mul(u64::from(next.weight)).div_ceil(self.round_weight.max(1));
        self.round_weight = self.round_weight.saturating_sub(u64::from(next.weight));
        Some((next, usize::try_from(share).unwrap_or(usize::MAX).min(self.left)))
    }

    /// It took so many rows.
    pub(super) fn took(&mut self, rows: usize) {
        self.left = self.left.saturating_sub(rows);
    }

    /// It has more, should the others leave something.
    pub(super) fn again(&mut self, tenant: Weighted<T>) {
        self.next_round.push_back(tenant);
    }

    /// Whether there is no row left of it.
    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Once the page is full: those that had no turn at all, and those that have more.
    pub(super) fn rest(self) -> (Vec<T>, Vec<T>) {
        let Self { round, next_round, is_first_round, left: _, round_weight: _ } = self;
        let tenants = |weighted: VecDeque<Weighted<T>>| {
            weighted.into_iter().map(|weighted| weighted.tenant).collect::<Vec<_>>()
        };
        if is_first_round {
            (tenants(round), tenants(next_round))
        } else {
            (
                Vec::new(),
                round.into_iter().chain(next_round).map(|weighted| weighted.tenant).collect(),
            )
        }
    }
}

fn sum<T>(round: &VecDeque<Weighted<T>>) -> u64 {
    round.iter().map(|weighted| u64::from(weighted.weight)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each tenant gets of a page, in the order of its turns, when it has so much due and that weight.
    fn split_by_weight(rows: usize, due: &[(usize, u32)]) -> Vec<(usize, usize)> {
        let mut left: Vec<usize> = due.iter().map(|(rows, _)| *rows).collect();
        let weighted =
            |(tenant, (_, weight)): (usize, &(usize, u32))| Weighted { tenant, weight: *weight };
        let (mut page, mut got) =
            (Page::new(rows, due.iter().enumerate().map(weighted)), Vec::new());
        while let Some((weighted, share)) = page.next() {
            let tenant = weighted.tenant;
            let rows = share.min(left[tenant]);
            left[tenant] -= rows;
            page.took(rows);
            got.push((tenant, rows));
            if left[tenant] > 0 {
                page.again(weighted);
            }
        }
        got
    }

    fn split(rows: usize, due: &[usize]) -> Vec<(usize, usize)> {
        split_by_weight(rows, &due.iter().map(|rows| (*rows, 1)).collect::<Vec<_>>())
    }

    #[test]
    fn tenants_with_work_share_a_page_and_what_one_leaves_the_others_take() {
        assert_eq!(split(128, &[1_000]), [(0, 128)]);
        assert_eq!(split(128, &[1_000, 1_000]), [(0, 64), (1, 64)]);
        assert_eq!(split(128, &[1_000, 4]), [(0, 64), (1, 4), (0, 60)]);
        assert_eq!(split(9, &[0, 1, 100, 100]), [(0, 0), (1, 1), (2, 4), (3, 4)]);
        assert_eq!(split(10, &[3, 2]), [(0, 3), (1, 2)]);
    }

    #[test]
    fn a_tenant_with_twice_the_weight_gets_twice_the_rows() {
        assert_eq!(split_by_weight(120, &[(1_000, 1), (1_000, 2)]), [(0, 40), (1, 80)]);
        assert_eq!(
            split_by_weight(120, &[(1_000, 3), (10, 2), (1_000, 1)]),
            [(0, 60), (1, 10), (2, 50)]
        );
        // However light, it gets a row while there is one.
        assert_eq!(split_by_weight(4, &[(9, 1_000), (9, 1)]), [(0, 4)]);
        assert_eq!(split_by_weight(4, &[(9, 1), (9, 1_000)]), [(0, 1), (1, 3)]);
        // The second round is by weight too.
        let rounds = split_by_weight(100, &[(0, 8), (100, 1), (100, 1)]);
        assert_eq!(rounds, [(0, 0), (1, 50), (2, 50)]);
    }

    #[test]
    fn tenants_that_find_the_page_full_are_told_apart() {
        let rest = |rows| {
            let mut page = Page::new(rows, (0..4).map(|tenant| Weighted { tenant, weight: 1 }));
            while let Some((tenant, _)) = page.next() {
                page.took(1);
                page.again(tenant);
            }
            page.rest()
        };
        assert_eq!(rest(2), (vec![2, 3], vec![0, 1]));
        assert_eq!(rest(4), (vec![], vec![0, 1, 2, 3]));
        assert_eq!(rest(6), (vec![], vec![2, 3, 0, 1]));
    }

    #[test]
    fn no_tenant_takes_the_last_of_what_the_others_leave() {
        assert_eq!(window(4_096, 0, 0, 87), 3_564);
        assert_eq!(window(4_096, 0, 3_564, 87), 0);
        assert_eq!(window(4_096, 3_564, 0, 87), 463);
        assert_eq!(window(4_096, 3_564, 500, 87), 0);
        assert_eq!(window(4_096, 4_095, 0, 87), 1);
        assert_eq!(window(4_096, 5_000, 0, 87), 0);
        assert_eq!(window(7, 0, 0, 87), 7);
        assert_eq!(window(4_096, 0, 0, 100), 4_096);
        assert_eq!(window(4_096, 0, 0, 1), 41);
        assert_eq!(window(usize::MAX, 0, 0, 50), usize::MAX - usize::MAX / 100 * 50);
    }
}
