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

#if defined(CONFIG_PREEMPT_RT) || !defined(CONFIG_SMP)
#error "rust/src/kernel.rs takes a spin lock for one word that is 0 when free"
#endif
static_assert(sizeof(arch_spinlock_t) == 4);

void *lowwater_shim_alloc(size_t size);
void lowwater_shim_free(void *memory);
void lowwater_shim_after_readers(void);
size_t lowwater_shim_processor(void);
void __noreturn lowwater_shim_bug(const char *file, size_t len, u32 line);

#ifdef CONFIG_DEBUG_SPINLOCK
/*
 * With lock debugging a spinlock_t has more than one word. The word is the architecture's lock then, and lockdep sees all
 * of lowwater's locks as one. It checks that none is held where the kernel must hold none (in a sleep, on return to user
 * space), but not their order among each other.
 */
#ifdef CONFIG_LOCKDEP
static struct lockdep_map lock_map = STATIC_LOCKDEP_MAP_INIT("lowwater", &lock_map);
#endif

void lowwater_shim_spin_lock(arch_spinlock_t *lock);
int lowwater_shim_spin_trylock(arch_spinlock_t *lock);
void lowwater_shim_spin_unlock(arch_spinlock_t *lock);

void lowwater_shim_spin_lock(arch_spinlock_t *lock)
{
	preempt_disable();
	lock_acquire(&lock_map, 0, 0, 0, 0, NULL, _RET_IP_);
	arch_spin_lock(lock);
}

int lowwater_shim_spin_trylock(arch_spinlock_t *lock)
{
	preempt_disable();
	if (!arch_spin_trylock(lock)) {
		preempt_enable();
		return 0;
	}
	lock_acquire(&lock_map, 0, 1, 0, 0, NULL, _RET_IP_);
	return 1;
}

void lowwater_shim_spin_unlock(arch_spinlock_t *lock)
{
	lock_release(&lock_map, _RET_IP_);
	arch_spin_unlock(lock);
	preempt_enable();
}
#endif

/* Allocations that have not been freed. */
static atomic_long_t allocations;
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

	if (memory)
		atomic_long_inc(&allocations);
	return memory;
}

void lowwater_shim_free(void *memory)
{
	atomic_long_dec(&allocations);
	kfree(memory);
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

/* Only one grace period is requested at a time, so one work is enough; it runs where locks may be taken and memory freed. */
void lowwater_shim_after_readers(void)
{
	queue_rcu_work(system_unbound_wq, &grace);
}

void lowwater_shim_drain(void)
{
	while (lowwater_waiting())
		flush_rcu_work(&grace);
	/* The work that freed the last object may still be returning. */
	flush_rcu_work(&grace);
}

void __noreturn lowwater_shim_bug(const char *file, size_t len, u32 line)
{
	pr_emerg("lowwater: this must not happen: %.*s:%u\n", (int)len, file, line);
	BUG();
}
