//! What the kernel gives, through `shim.c`: memory, a lock, RCU, the processor, and an end.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::panic::PanicInfo;

use lowwater_lru_core::embedder;

unsafe extern "C" {
    fn lowwater_shim_alloc(size: usize) -> *mut c_void;
    fn lowwater_shim_free(memory: *mut c_void);
    // The kernel's own: the spin lock's functions are exported.
    fn _raw_spin_lock(lock: *mut u32);
    fn _raw_spin_trylock(lock: *mut u32) -> i32;
    fn _raw_spin_unlock(lock: *mut u32);
    fn __rcu_read_lock();
    fn __rcu_read_unlock();
    safe fn lowwater_shim_after_readers();
    safe fn lowwater_shim_processor() -> usize;
    fn lowwater_shim_bug(file: *const u8, len: usize, line: u32) -> !;
}

/// The division of the limits' shares and the shrinker's parts: 128 bits, so that no product overflows. Kernels do not have it.
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

/// kmalloc.
struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

// SAFETY: kmalloc gives memory of at least that size or null, aligned to 8, and to its size if that is a power of two.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size =
            if layout.align() <= 8 { layout.size() } else { layout.size().max(layout.align()).next_power_of_two() };
        // SAFETY: any size may be asked for.
        unsafe { lowwater_shim_alloc(size) }.cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: it came from `alloc`, says the caller.
        unsafe { lowwater_shim_free(memory.cast()) }
    }
}

/// The kernel's spin lock, in a build without lock debugging: a word that is 0 when free. Not for interrupts.
#[repr(transparent)]
pub struct SpinLock(UnsafeCell<u32>);

// SAFETY: the word is touched by the kernel's functions only.
unsafe impl Sync for SpinLock {}
// SAFETY: 0 is a free lock, and it needs no end. shim.c asserts both of the kernel it is compiled for.
unsafe impl embedder::Lock for SpinLock {}

// SAFETY: it is the kernel's lock.
unsafe impl lock_api::RawMutex for SpinLock {
    const INIT: Self = Self(UnsafeCell::new(0));
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        // SAFETY: the word is a lock of the kernel's.
        unsafe { _raw_spin_lock(self.0.get()) }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // SAFETY: as above.
        unsafe { _raw_spin_trylock(self.0.get()) != 0 }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: as above; the caller holds it.
        unsafe { _raw_spin_unlock(self.0.get()) }
    }
}

/// RCU. What waits for it is asked about by `queue_rcu_work`, which answers from a worker thread.
pub struct Rcu;

// SAFETY: this is what RCU is.
unsafe impl embedder::ReadSide for Rcu {
    #[inline]
    fn enter() {
        // SAFETY: it may be called from anywhere.
        unsafe { __rcu_read_lock() }
    }

    #[inline]
    unsafe fn leave() {
        // SAFETY: this thread entered, says the caller.
        unsafe { __rcu_read_unlock() }
    }

    unsafe fn after_readers() {
        lowwater_shim_after_readers();
    }
}

/// This processor.
pub struct Smp;

impl embedder::Processor for Smp {
    fn current() -> usize {
        lowwater_shim_processor()
    }
}

lowwater_lru_core::embedder! { lock: SpinLock, read: Rcu, processor: Smp }

/// Nothing here is meant to panic (`ci/kmod.sh` lists what could). If it does, the kernel is told where.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let (file, line) = info.location().map_or(("?", 0), |at| (at.file(), at.line()));
    // SAFETY: the text is `len` bytes long.
    unsafe { lowwater_shim_bug(file.as_ptr(), file.len(), line) }
}
