//! The progress of the reaper's sweep over the index, and the earliest deadline that was registered since the last sweep.

use std::time::Instant;

use lowwater_lru_core::index::Cursor;
use lowwater_lru_core::Soonest;
use once_cell::race::OnceBox;
use parking_lot::Mutex;

use super::clock::Clock;
use super::deadline::Deadline;

/// How far the keeper has come. Small as long as nothing has a time.
#[derive(Default)]
pub(crate) struct Rounds {
    /// The soonest time that was said since the last round began.
    pub(crate) said: Soonest,
    /// None before the first round.
    pub(crate) round: OnceBox<Mutex<Round>>,
}

pub(crate) struct Round {
    /// None between two rounds.
    pub(crate) at: Option<Cursor>,
    /// The soonest time that was seen.
    pub(crate) seen: Deadline,
    pub(crate) began: Option<Instant>,
    pub(crate) freed: bool,
    /// Something that was let go of had to stay, for a reader that was there: to be tried again.
    pub(crate) stays: bool,
}

impl Default for Round {
    fn default() -> Self {
        Self { at: None, seen: Deadline::NEVER, began: None, freed: false, stays: false }
    }
}

impl Rounds {
    /// An entry that is in the index expires then. True if the keeper is to be told.
    #[inline]
    pub(crate) fn says(&self, at: Deadline, clock: &Clock) -> bool {
        let is_sooner = |ours, said| Deadline::from_raw(ours).is_before(Deadline::from_raw(said), || clock.now());
        !at.is_never() && self.said.says(at.raw(), is_sooner)
    }

    /// None as long as there is nothing for a round to do.
    pub(crate) fn round(&self) -> Option<&Mutex<Round>> {
        match self.said() {
            Deadline::NEVER => self.round.get(),
            _ => Some(self.round.get_or_init(Box::default)),
        }
    }

    /// Bytes of what was made for the first round.
    pub(crate) fn footprint(&self) -> usize {
        self.round.get().map_or(0, size_of_val)
    }

    pub(crate) fn said(&self) -> Deadline {
        Deadline::from_raw(self.said.said())
    }
}

const _: () = assert!(Deadline::NEVER.raw() == Soonest::NOTHING, "what was not said is never");
