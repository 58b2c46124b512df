//! The state of victim selection.

use once_cell::race::OnceBox;
use parking_lot::Mutex;

/// Picks the victims of inserts. A null pointer before room is made for the first time.
#[derive(Default)]
pub(crate) struct VictimPicker(pub(crate) OnceBox<Mutex<PickerState>>);

/// The position of the victim picker.
#[derive(Default)]
pub(crate) struct PickerState {
    /// The tenant that is evicted from, and for how many more batches.
    pub(crate) victim: u32,
    pub(crate) turns_left: u64,
    /// The tenant that is observed for idleness, and whether it was idle.
    pub(crate) idle_candidate: u32,
    pub(crate) is_idle: bool,
    /// Inserts since the observation began.
    pub(crate) pace: u64,
    /// The largest id that has inserted.
    pub(crate) last_id: u32,
}

impl VictimPicker {
    /// Bytes of the state.
    pub(crate) fn footprint(&self) -> usize {
        self.0.get().map_or(0, size_of_val)
    }

    /// For tests: tells whether a thread is picking a victim.
    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.get().is_some_and(Mutex::is_locked)
    }
}
