// SPDX-License-Identifier: GPL-2.0

//! A file of /proc that takes commands for a [`Load`], through `proc.c`. The `kernel` crate of
//! Linux 6.12 has no files.
//!
//! A change must ensure that the file is removed before its load is dropped, and keep the text of
//! the report at the unload, which `guest.sh` searches for.

use super::load::{Failure, Load, WORKERS};
use super::Registered;
use core::fmt::{self, Write};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use kernel::{ffi::c_void, prelude::*};

/// The data of the file.
pub(crate) struct Commands {
    load: Load<Registered>,
    opened: AtomicUsize,
    /// The commands that run.
    running: AtomicUsize,
}

extern "C" {
    fn lowwater_proc_create(name: *const kernel::ffi::c_char, data: *mut c_void) -> *mut c_void;
    fn lowwater_proc_remove(entry: *mut c_void);
}

/// The file. Dropping it reports the number of running commands, and waits for them.
///
/// # Invariants
///
/// `entry` is the file, and `commands` is its data.
pub(crate) struct ProcFile {
    entry: NonNull<c_void>,
    commands: KBox<Commands>,
}

// SAFETY: A file may be removed on any thread, and the commands are `Sync`.
unsafe impl Send for ProcFile {}
// SAFETY: A reference gives only `&Commands`, which is `Sync`.
unsafe impl Sync for ProcFile {}

impl ProcFile {
    /// Creates the file `/proc/name`.
    pub(crate) fn new(name: &'static CStr, load: Load<Registered>) -> Result<Self> {
        let commands = KBox::new(
            Commands {
                load,
                opened: AtomicUsize::new(0),
                running: AtomicUsize::new(0),
            },
            GFP_KERNEL,
        )?;
        let data: *const Commands = &*commands;
        // SAFETY: The name is a C string, and the commands live until the file is removed.
        let entry = unsafe { lowwater_proc_create(name.as_char_ptr(), data.cast_mut().cast()) };
        // INVARIANT: The file was created with these commands.
        Ok(Self {
            entry: NonNull::new(entry).ok_or(ENOMEM)?,
            commands,
        })
    }
}

impl Drop for ProcFile {
    fn drop(&mut self) {
        pr_info!(
            "{} commands at unload\n",
            self.commands.running.load(Relaxed)
        );
        // SAFETY: By the type invariant, the file exists. Its data is dropped after this.
        unsafe { lowwater_proc_remove(self.entry.as_ptr()) }
    }
}

/// A writer into a buffer of limited length.
struct Line<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self
            .room
            .get_mut(self.len..self.len + text.len())
            .ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Called by `proc.c` when the file is opened. Returns the number of the worker.
///
/// # Safety
///
/// `data` is that of the file.
#[no_mangle]
unsafe extern "C" fn lowwater_proc_open(data: *mut c_void) -> usize {
    // SAFETY: By the safety requirements, it is the file's `Commands`, which outlive it.
    unsafe { &*data.cast::<Commands>() }
        .opened
        .fetch_add(1, Relaxed)
        % WORKERS
}

/// Called by `proc.c` for a command. Returns 0 or an error number.
///
/// # Safety
///
/// `data` is that of the file, `text` has `len` bytes, `said` has `room` bytes, which no other
/// thread reads or writes during the call.
#[no_mangle]
unsafe extern "C" fn lowwater_proc_command(
    data: *mut c_void,
    worker: usize,
    text: *const u8,
    len: usize,
    said: *mut u8,
    room: usize,
) -> i32 {
    // SAFETY: By the safety requirements, it is the file's `Commands`, which outlive it.
    let commands = unsafe { &*data.cast::<Commands>() };
    // SAFETY: By the safety requirements, the text has this length.
    let text = unsafe { core::slice::from_raw_parts(text, len) };
    // SAFETY: By the safety requirements, there is this room, and no other thread accesses it.
    let room = unsafe { core::slice::from_raw_parts_mut(said, room) };
    // `proc.c` reads up to the first zero.
    room.fill(0);
    let Ok(text) = core::str::from_utf8(text) else {
        return EINVAL.to_errno();
    };
    commands.running.fetch_add(1, Relaxed);
    let result = commands.load.run(worker, text, &mut Line { room, len: 0 });
    commands.running.fetch_sub(1, Relaxed);
    match result {
        Ok(()) => 0,
        Err(Failure::Unknown) => EINVAL.to_errno(),
        Err(Failure::NoMemory) => ENOMEM.to_errno(),
    }
}
