//! How a claim is split across the tenants with work due. Pure ("Tenants, counters and the active index").

use std::collections::VecDeque;

/// What one tenant may still take of a bound, rows or bytes, when it holds `held` of it and the others `others`: seven
/// eighths of what the others leave. So however much a tenant has waiting for a sink that hangs, there is room for
/// the next tenant, and one tenant alone has nearly all of it.
pub(super) fn window(max: usize, others: usize, held: usize) -> usize {
    let room = max.saturating_sub(others);
    (room - room / 8).saturating_sub(held)
}

/// A page of rows shared out among tenants: an equal part each, and what one leaves goes to the next.
#[derive(Debug)]
pub(super) struct Page<T> {
    left: usize,
    turns: VecDeque<T>,
    /// Tenants that have not had their first turn.
    unserved: usize,
}

impl<T> Page<T> {
    pub(super) fn new(rows: usize, tenants: impl IntoIterator<Item = T>) -> Self {
        let turns: VecDeque<T> = tenants.into_iter().collect();
        Self { left: rows, unserved: turns.len(), turns }
    }

    /// Whose turn it is, and how many rows it may take.
    pub(super) fn next(&mut self) -> Option<(T, usize)> {
        if self.left == 0 {
            return None;
        }
        let share = self.left.div_ceil(self.turns.len().max(1));
        let tenant = self.turns.pop_front()?;
        self.unserved = self.unserved.saturating_sub(1);
        Some((tenant, share))
    }

    /// It took so many rows.
    pub(super) fn took(&mut self, rows: usize) {
        self.left = self.left.saturating_sub(rows);
    }

    /// It has more, should the others leave something.
    pub(super) fn again(&mut self, tenant: T) {
        self.turns.push_back(tenant);
    }

    /// Tenants, of the last ones given, that have had no turn.
    pub(super) fn unserved(&self) -> usize {
        self.unserved
    }

    /// Those still waiting for a turn: the ones without any first.
    pub(super) fn rest(self) -> Vec<T> {
        self.turns.into()
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
        let mut page = Page::new(2, 0..5);
        while page.next().is_some() {
            page.took(1);
        }
        assert_eq!((page.unserved(), page.rest()), (3, vec![2, 3, 4]));
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
