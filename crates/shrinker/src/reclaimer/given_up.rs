//! The jobs that a reclaimer thread has given up while their groups were above a limit.
//!
//! They are done again after a while. Nothing else need request them again: memory may become
//! freeable without a charge, for instance in a process that is idle since its budget was lowered.
//! A group that is only above its watermark, and not above `max`, may stay there: its next charge
//! requests it again.
//!
//! A change must ensure that nothing is due while no job is kept, so that an idle thread sleeps.

use alloc::vec::Vec;
use core::time::Duration;
use std::time::Instant;

use lowwater_base::fallible::try_push;
use lowwater_lru_core::Memcg;

use super::reason::ReclaimReason;
use super::step::Job;
use super::wake::WakeRequest;

/// The time until the first try; doubled as long as any group stays above its limit, up to
/// [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest time for which newly freeable memory of an idle process goes unnoticed.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The most jobs that are kept. Further ones are requested again at their groups' next charges.
const KEPT_MAX: usize = 1_024;

/// One thread's jobs that are to be done again.
pub(super) struct GivenUp {
    requests: Vec<WakeRequest>,
    /// When all of them are due; `None` if there are none.
    due_at: Option<Instant>,
    /// The time until they are due, when the next one is kept.
    pause: Duration,
}

impl Default for GivenUp {
    fn default() -> Self {
        Self { requests: Vec::new(), due_at: None, pause: PAUSE_MIN }
    }
}

impl GivenUp {
    /// Keeps the request of a job that was given up, if it follows a limit and the group is above
    /// it: other requests are repeated, or were served as far as possible.
    pub(super) fn keep(&mut self, job: &Job, now: Instant) {
        let (Some(reason), Some(target)) = (job.limit_reason(), job.target()) else { return };
        let is_kept = |kept: &WakeRequest| kept.memcg == *job.memcg() && kept.reason == reason;
        let has_room = self.requests.len() < KEPT_MAX;
        if !has_room || !is_above_limit(job.memcg(), reason) || self.requests.iter().any(is_kept) {
            return;
        }
        // Without memory it is not kept, as if there were too many.
        let request = WakeRequest { memcg: job.memcg().clone(), reason, target };
        if try_push(&mut self.requests, request).is_ok() && self.due_at.is_none() {
            self.due_at = Some(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns when the requests are due; `None` if there are none.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    /// Takes the requests if they are due: those of groups that are still above their limits.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<WakeRequest> {
        if self.due_at.is_none_or(|due_at| due_at > now) {
            return Vec::new();
        }
        self.due_at = None;
        let mut due = core::mem::take(&mut self.requests);
        due.retain(|WakeRequest { memcg, reason, .. }| memcg.is_online() && is_above_limit(memcg, *reason));
        due
    }

    /// Shortens the time until the next try if all jobs have ended and none was given up again.
    pub(super) fn end_round(&mut self) {
        if self.due_at.is_none() {
            self.pause = PAUSE_MIN;
        }
    }
}

/// Returns true if a group is above the limit that a reason follows.
fn is_above_limit(memcg: &Memcg, reason: ReclaimReason) -> bool {
    match reason {
        ReclaimReason::Watermark | ReclaimReason::Limit => memcg.usage() > memcg.reclaim_max(),
        ReclaimReason::High => memcg.usage() > memcg.high(),
        ReclaimReason::Debt | ReclaimReason::Manual(_) | ReclaimReason::Pressure(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::watermark::Watermarks;
    use super::*;
    use lowwater_lru_core::{ByteSize, MemcgTree};

    const MARKS: Watermarks = Watermarks::RELATIVE;

    /// A tree with a group that uses 1,000 bytes and may use 100.
    fn above_its_high() -> (MemcgTree, Memcg) {
        let tree = MemcgTree::new(0);
        let group = tree.root().create("g").unwrap();
        let _is_above_high = group.try_charge(ByteSize::new(1_000)).unwrap();
        group.set_high(ByteSize::new(100));
        (tree, group)
    }

    fn job(memcg: &Memcg) -> Job {
        Job::below_limit(memcg.clone(), ReclaimReason::High, MARKS)
    }

    #[test]
    fn a_job_for_a_limit_is_due_again_once() {
        let (tree, group) = above_its_high();
        let (mut given_up, now) = (GivenUp::default(), Instant::now());
        assert_eq!(given_up.due_at(), None);
        let other = ReclaimReason::Pressure(ByteSize::ZERO);
        given_up.keep(&Job::of_request(group.clone(), other, ByteSize::ZERO), now);
        given_up.keep(&Job::debts(tree.root().clone()), now);
        assert_eq!(given_up.due_at(), None, "these are repeated by others, or have no target");
        given_up.keep(&job(&group), now);
        given_up.keep(&job(&group), now + PAUSE_MIN / 2);
        assert_eq!(given_up.due_at(), Some(now + PAUSE_MIN));
        assert!(given_up.take_due(now + PAUSE_MIN / 2).is_empty());
        let due = given_up.take_due(now + PAUSE_MIN);
        assert_eq!(due.iter().map(|due| (&due.memcg, due.reason)).collect::<Vec<_>>(), [(&group, ReclaimReason::High)]);
        assert_eq!(given_up.due_at(), None);
        assert!(given_up.take_due(now + PAUSE_MAX).is_empty());
    }

    #[test]
    fn the_time_between_tries_doubles_until_none_is_given_up() {
        let (_tree, group) = above_its_high();
        let (mut given_up, mut now) = (GivenUp::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            given_up.keep(&job(&group), now);
            given_up.end_round();
            let due_at = given_up.due_at().unwrap();
            pauses.push((due_at - now).as_millis());
            now = due_at;
            assert_eq!(given_up.take_due(now).len(), 1);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        given_up.end_round();
        given_up.keep(&job(&group), now);
        assert_eq!(given_up.due_at(), Some(now + PAUSE_MIN));
    }

    #[test]
    fn a_group_that_has_ended_or_is_within_its_limit_is_let_go() {
        let ends: [fn(&Memcg); 3] = [
            |group| group.offline().unwrap(),
            |group| group.set_high(ByteSize::new(1_000)),
            |group| group.uncharge(ByteSize::new(900)),
        ];
        for end in ends {
            let (_tree, group) = above_its_high();
            let (mut given_up, now) = (GivenUp::default(), Instant::now());
            given_up.keep(&job(&group), now);
            end(&group);
            assert!(given_up.take_due(now + PAUSE_MIN).is_empty());
            assert_eq!((given_up.due_at(), given_up.requests.capacity()), (None, 0));
        }
    }

    /// In an idle process it may stay between its target and `max` for ever.
    #[test]
    fn a_group_is_not_tried_again_when_it_is_above_its_watermark_only() {
        for reason in [ReclaimReason::Watermark, ReclaimReason::Limit] {
            let (_tree, group) = above_its_high();
            let (mut given_up, now) = (GivenUp::default(), Instant::now());
            let job = || Job::below_limit(group.clone(), reason, MARKS);
            group.set_max(ByteSize::new(1_000));
            assert!(Some(group.usage()) > job().target());
            given_up.keep(&job(), now);
            assert_eq!(given_up.due_at(), None);
            group.set_max(ByteSize::new(990));
            given_up.keep(&job(), now);
            assert_eq!(given_up.due_at(), Some(now + PAUSE_MIN));
            group.uncharge(ByteSize::new(10));
            assert!(given_up.take_due(now + PAUSE_MIN).is_empty());
        }
    }

    #[test]
    fn a_bounded_number_of_jobs_is_kept() {
        let (tree, _group) = above_its_high();
        let mut given_up = GivenUp::default();
        for n in 0..KEPT_MAX + 10 {
            let group = tree.root().create(&std::format!("{n}")).unwrap();
            group.set_high(ByteSize::ZERO);
            let _is_above_high = group.try_charge(ByteSize::new(1)).unwrap();
            given_up.keep(&job(&group), Instant::now());
        }
        assert_eq!(given_up.requests.len(), KEPT_MAX);
    }
}
