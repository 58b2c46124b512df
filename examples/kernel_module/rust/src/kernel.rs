// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's services, through `shim.c`: memory, a lock, RCU, and the processor number. Rust
//! modules (`../../modules`) use this file, too.
//!
//! The embedder's side of `lowwater_base::embedder`: everything that the library needs from its
//! environment. `shim.c` is needed for inline functions and macros of the kernel.
//!
//! A change must keep the contracts of the `embedder` traits. A function of the shim that is added
//! here needs its C side in `shim.c`.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ffi::c_void;

use lowwater_lru_core::embedder;

unsafe extern "C" {
    fn lowwater_shim_alloc(size: usize) -> *mut c_void;
    fn lowwater_shim_free(memory: *mut c_void);
    // A kernel with `CONFIG_PREEMPT` or `CONFIG_PREEMPT_RT` is needed: others do not export
    // `__rcu_read_lock` and `_raw_spin_unlock`.
    // The functions of the spin lock are exported by the kernel itself, except on two kinds of
    // kernels, where the shim has them: with lock debugging a `spinlock_t` is longer than a word,
    // so the shim takes an `arch_spinlock_t`; with PREEMPT_RT a `spinlock_t` is an `rt_mutex`.
    #[cfg_attr(any(CONFIG_DEBUG_SPINLOCK, CONFIG_PREEMPT_RT), link_name = "lowwater_shim_spin_lock")]
    fn _raw_spin_lock(lock: *mut Words);
    #[cfg_attr(any(CONFIG_DEBUG_SPINLOCK, CONFIG_PREEMPT_RT), link_name = "lowwater_shim_spin_trylock")]
    fn _raw_spin_trylock(lock: *mut Words) -> i32;
    #[cfg_attr(any(CONFIG_DEBUG_SPINLOCK, CONFIG_PREEMPT_RT), link_name = "lowwater_shim_spin_unlock")]
    fn _raw_spin_unlock(lock: *mut Words);
    fn __rcu_read_lock();
    fn __rcu_read_unlock();
    safe fn lowwater_shim_after_readers();
    safe fn lowwater_shim_processor() -> usize;
}

/// Division of 128-bit numbers, which kernels do not have: the limits' shares and the shrinker's
/// parts are computed in 128 bits, so that no product overflows.
#[unsafe(no_mangle)]
extern "C" fn __udivti3(dividend: u128, divisor: u128) -> u128 {
    if let (Ok(dividend), Ok(divisor @ 1..)) = (u64::try_from(dividend), u64::try_from(divisor)) {
        return u128::from(dividend / divisor);
    }
    let (mut quotient, mut rest) = (0, 0_u128);
    for bit in (0..u128::BITS).rev() {
        let carry = rest >> (u128::BITS - 1) != 0;
        rest = rest << 1 | (dividend >> bit) & 1;
        quotient <<= 1;
        if carry || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    quotient
}

/// An allocator on kmalloc.
struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

// SAFETY: kmalloc returns memory of at least that size, or null, aligned to 8, and to its size if
// that is a power of two.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size =
            if layout.align() <= 8 { layout.size() } else { layout.size().max(layout.align()).next_power_of_two() };
        // SAFETY: kmalloc accepts every size.
        unsafe { lowwater_shim_alloc(size) }.cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: by the contract of `dealloc` the memory came from `alloc`, so from kmalloc.
        unsafe { lowwater_shim_free(memory.cast()) }
    }
}

/// The memory of the kernel's spin lock: a word, also with lock debugging.
#[cfg(not(CONFIG_PREEMPT_RT))]
type Words = u32;
/// The memory of the kernel's spin lock, an `rt_mutex`. lowwater has to be compiled with `--cfg
/// lowwater_wide_lock`.
#[cfg(CONFIG_PREEMPT_RT)]
type Words = [u64; 4];

/// The kernel's spin lock: memory that is 0 when free. Not for interrupts.
#[repr(transparent)]
pub struct SpinLock(UnsafeCell<Words>);

// SAFETY: only the kernel's lock functions access the memory, and they are atomic.
unsafe impl Sync for SpinLock {}
// SAFETY: 0 is an unlocked lock, and it needs no destructor. shim.c asserts the size, and takes
// another lock, or does not compile, where the kernel's lock is not 0 when free. The kernel's spin
// locks do not access the lock after the store that releases it.
unsafe impl embedder::Lock for SpinLock {}

// SAFETY: the kernel's spin lock is exclusive from `_raw_spin_lock` to `_raw_spin_unlock`.
unsafe impl lock_api::RawMutex for SpinLock {
    // SAFETY: zeroed bytes are an unlocked spin lock.
    const INIT: Self = Self(UnsafeCell::new(unsafe { core::mem::zeroed() }));
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        // SAFETY: the memory is an initialized lock of the kernel (`INIT` is 0), and lives as long
        // as `self`.
        unsafe { _raw_spin_lock(self.0.get()) }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // SAFETY: the memory is an initialized lock of the kernel (`INIT` is 0), and lives as long
        // as `self`.
        unsafe { _raw_spin_trylock(self.0.get()) != 0 }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the memory is an initialized lock of the kernel, and by the contract of `unlock`
        // the caller holds it.
        unsafe { _raw_spin_unlock(self.0.get()) }
    }
}

/// RCU. Grace periods are requested by `queue_rcu_work`, which reports back from a worker thread.
pub struct Rcu;

// SAFETY: RCU's read-side sections delay grace periods, as `ReadSide` demands. No code of these
// modules leaks a guard, so no section is open when a task exits, and the nesting count does not
// wrap.
unsafe impl embedder::ReadSide for Rcu {
    #[inline]
    fn enter() {
        // SAFETY: `__rcu_read_lock` may be called in every context.
        unsafe { __rcu_read_lock() }
    }

    #[inline]
    unsafe fn leave() {
        // SAFETY: by the contract of `leave` this thread has entered.
        unsafe { __rcu_read_unlock() }
    }

    unsafe fn after_readers() {
        lowwater_shim_after_readers();
    }
}

/// The number of the current processor.
pub struct Smp;

impl embedder::Processor for Smp {
    fn current() -> usize {
        lowwater_shim_processor()
    }
}

lowwater_lru_core::embedder! { lock: SpinLock, read: Rcu, processor: Smp }
