//! How a claim is split across the tenants with work due. Pure ("Tenants, counters and the active index").

use std::collections::VecDeque;

/// What one tenant may still take of a bound, rows or bytes, when it holds `held` of it and the others `others`: seven
/// eighths of what the others leave. So however much a tenant has waiting for a sink that hangs, there is room for
/// the next tenant, and one tenant alone has nearly all of it.
pub(super) fn window(max: usize, others: usize, held: usize) -> usize {
    let room = max.saturating_sub(others);
    (room - room / 8).saturating_sub(held)
}

/// A page of rows shared out among tenants in rounds: an equal part each of what is left, and what some leave goes to
/// the others.
#[derive(Debug)]
pub(super) struct Page<T> {
    left: usize,
    /// Those whose turn in this round is still to come.
    round: VecDeque<T>,
    /// Those that have more.
    next_round: VecDeque<T>,
    is_first_round: bool,
}

impl<T> Page<T> {
    pub(super) fn new(rows: usize, tenants: impl IntoIterator<Item = T>) -> Self {
        let round = tenants.into_iter().collect();
        Self { left: rows, round, next_round: VecDeque::new(), is_first_round: true }
    }

    /// Whose turn it is, and how many rows it may take.
    pub(super) fn next(&mut self) -> Option<(T, usize)> {
        if self.left == 0 {
            return None;
        }
        if self.round.is_empty() {
            self.round = std::mem::take(&mut self.next_round);
            self.is_first_round = false;
        }
        let share = self.left.div_ceil(self.round.len().max(1));
        self.round.pop_front().map(|tenant| (tenant, share))
    }

    /// It took so many rows.
    pub(super) fn took(&mut self, rows: usize) {
        self.left = self.left.saturating_sub(rows);
    }

    /// It has more, should the others leave something.
    pub(super) fn again(&mut self, tenant: T) {
        self.next_round.push_back(tenant);
    }

    /// Once the page is full: those that had no turn at all, and those that have more.
    pub(super) fn rest(self) -> (Vec<T>, Vec<T>) {
        let Self { round, next_round, is_first_round, left: _ } = self;
        if is_first_round {
            (round.into(), next_round.into())
        } else {
            (Vec::new(), round.into_iter().chain(next_round).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each tenant gets of a page, in the order of its turns, when it has so much due.
    fn split(rows: usize, due: &[usize]) -> Vec<(usize, usize)> {
        let mut due = due.to_vec();
        let (mut page, mut got) = (Page::new(rows, 0..due.len()), Vec::new());
        while let Some((tenant, share)) = page.next() {
            let rows = share.min(due[tenant]);
            due[tenant] -= rows;
            page.took(rows);
            got.push((tenant, rows));
            if due[tenant] > 0 {
                page.again(tenant);
            }
        }
        got
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
    fn tenants_that_find_the_page_full_are_told_apart() {
        let rest = |rows| {
            let mut page = Page::new(rows, 0..4);
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
    fn no_tenant_takes_the_last_eighth_that_the_others_leave() {
        assert_eq!(window(4_096, 0, 0), 3_584);
        assert_eq!(window(4_096, 0, 3_584), 0);
        assert_eq!(window(4_096, 3_584, 0), 448);
        assert_eq!(window(4_096, 3_584, 500), 0);
        assert_eq!(window(4_096, 4_095, 0), 1);
        assert_eq!(window(4_096, 5_000, 0), 0);
        assert_eq!(window(7, 0, 0), 7);
    }
}
