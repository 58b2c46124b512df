// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel functions that lowwater needs, and only those. rust/src/kernel.rs calls locks and RCU's read side directly.

#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/lockdep.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "lowwater.h"

#ifndef CONFIG_SMP
#error "rust/src/kernel.rs takes a spin lock for memory that is 0 when free; without processors it has none"
#endif

void *lowwater_shim_alloc(size_t size);
void lowwater_shim_free(void *memory);
void lowwater_shim_after_readers(void);
size_t lowwater_shim_processor(void);
void __noreturn lowwater_shim_bug(const char *file, size_t len, u32 line);

#if defined(CONFIG_PREEMPT_RT)
/*
 * A task that waits for a spinlock_t sleeps, so memory may be allocated under it. It is an rt_mutex, in kernel.rs's wide lock.
 */
#ifdef CONFIG_DEBUG_SPINLOCK
#error "with lock debugging, the lock inside an rt_mutex is not 0 when free"
#endif
static_assert(sizeof(spinlock_t) <= 32 && __alignof__(spinlock_t) <= 8);

void lowwater_shim_spin_lock(spinlock_t *lock);
int lowwater_shim_spin_trylock(spinlock_t *lock);
void lowwater_shim_spin_unlock(spinlock_t *lock);

void lowwater_shim_spin_lock(spinlock_t *lock)
{
	spin_lock(lock);
}

int lowwater_shim_spin_trylock(spinlock_t *lock)
{
	return spin_trylock(lock);
}

void lowwater_shim_spin_unlock(spinlock_t *lock)
{
	spin_unlock(lock);
}
#elif defined(CONFIG_DEBUG_SPINLOCK)
/*
 * With lock debugging a spinlock_t has more than one word, and is not 0 when free. The word is the architecture's lock then.
 * For lockdep the outermost lock of lowwater that a processor holds is of one class, the lock inside it of another, and so
 * on. It checks their contexts and their order with the kernel's locks, but not their order among each other.
 */
/* The locks that the processor holds. */
static DEFINE_PER_CPU(unsigned int, held);
#ifdef CONFIG_LOCKDEP
static struct lockdep_map lock_map = {
	.name = "lowwater",
	.key = (struct lock_class_key *)&lock_map,
	.wait_type_inner = LD_WAIT_CONFIG,
};
#endif

void lowwater_shim_spin_lock(arch_spinlock_t *lock);
int lowwater_shim_spin_trylock(arch_spinlock_t *lock);
void lowwater_shim_spin_unlock(arch_spinlock_t *lock);

static void note_lock(bool tried)
{
	unsigned int depth = this_cpu_inc_return(held) - 1;

	/* There are no classes for deeper ones. No order is checked of a lock that was tried. */
	if (depth >= MAX_LOCKDEP_SUBCLASSES)
		depth = 0, tried = true;
	lock_acquire(&lock_map, depth, tried, 0, 1, NULL, _RET_IP_);
}

void lowwater_shim_spin_lock(arch_spinlock_t *lock)
{
	preempt_disable();
	note_lock(false);
	arch_spin_lock(lock);
}

int lowwater_shim_spin_trylock(arch_spinlock_t *lock)
{
	preempt_disable();
	if (!arch_spin_trylock(lock)) {
		preempt_enable();
		return 0;
	}
	note_lock(true);
	return 1;
}

void lowwater_shim_spin_unlock(arch_spinlock_t *lock)
{
	lock_release(&lock_map, _RET_IP_);
	this_cpu_dec(held);
	arch_spin_unlock(lock);
	preempt_enable();
}
#endif

#ifndef CONFIG_PREEMPT_RT
static_assert(sizeof(arch_spinlock_t) == 4);
#endif

/* Allocations that have not been freed. */
static atomic_long_t allocations;
/* The bytes that kmalloc reserves for them. */
static atomic_long_t allocated;
/* One of this many allocations fails. */
static ulong fail_every;
module_param(fail_every, ulong, 0644);
MODULE_PARM_DESC(fail_every, "Refuse every n-th allocation of the Rust side, to try what happens; 0: none");
static atomic_long_t asked;
static atomic_long_t refusals;

/* Called under spin locks, in reclaim, anywhere except in interrupts. Callers handle a failure. */
void *lowwater_shim_alloc(size_t size)
{
	void *memory;

	if (fail_every && !((unsigned long)atomic_long_inc_return(&asked) % fail_every)) {
		atomic_long_inc(&refusals);
		return NULL;
	}
	memory = kmalloc(size, GFP_ATOMIC | __GFP_NOWARN);

	if (memory) {
		atomic_long_inc(&allocations);
		atomic_long_add(ksize(memory), &allocated);
	}
	return memory;
}

void lowwater_shim_free(void *memory)
{
	atomic_long_dec(&allocations);
	atomic_long_sub(ksize(memory), &allocated);
	kfree(memory);
}

long lowwater_shim_allocated(void)
{
	return atomic_long_read(&allocated);
}

long lowwater_shim_allocations(void)
{
	return atomic_long_read(&allocations);
}

long lowwater_shim_refusals(void)
{
	return atomic_long_read(&refusals);
}

size_t lowwater_shim_processor(void)
{
	return raw_smp_processor_id();
}

static void readers_left(struct work_struct *work)
{
	lowwater_readers_left();
}

static struct rcu_work grace = {
	.work = __WORK_INITIALIZER(grace.work, readers_left),
};

/*
 * Only one grace period is requested at a time, so one work is enough; it runs where locks may be taken and memory freed. The
 * queue has no WQ_MEM_RECLAIM, so the work may wait for a worker that is created when there is memory: reclaim does not wait
 * for it, and what it frees is lists and tables. The objects that reclaim evicts are freed without it.
 */
void lowwater_shim_after_readers(void)
{
	queue_rcu_work(system_unbound_wq, &grace);
}

void lowwater_shim_drain(void)
{
	/* An object that is being freed counts: its destructor may retire another, for which the work is queued again. */
	while (lowwater_waiting())
		flush_rcu_work(&grace);
	/* No request is open or will be made, but the work that freed the last object may still be returning. */
	flush_rcu_work(&grace);
}

void __noreturn lowwater_shim_bug(const char *file, size_t len, u32 line)
{
	pr_emerg("lowwater: this must not happen: %.*s:%u\n", (int)len, file, line);
	BUG();
}
