/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The load of both modules: a cache of objects, filled and used through /proc/NAME, with one worker per open file.
 *
 *   fill N       creates N objects, and adds them to the lists
 *   churn N      N times: removes a random object and adds it again, frees it, or creates one in an empty slot
 *   pairs N SPAN N times: removes one of the first SPAN objects, and adds it again; reports the time of one, in ns
 *   empty        frees all objects
 *   count        reports the number of listed objects
 *
 * A read returns the result of the last command. The includer defines NAME, struct links, and
 *   struct group *group_of_current(void), struct object *object_alloc(struct group *),
 *   int lists_add(struct object *), bool lists_del(struct object *), unsigned long lists_count(void).
 */
#include <linux/atomic.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/prandom.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

struct worker {
	struct list_head all;
	/* Held by each read and write: pwrite(2) and io_uring do not take the lock of the file's position. */
	struct mutex lock;
	struct object **slots;
	unsigned long nr_slots;
	struct group *group;
	struct rnd_state rnd;
	char said[96];
};

static struct kmem_cache *objects;
/* Live objects. */
static atomic_long_t alive;
/* Adds that failed because an allocation failed. */
static atomic_long_t refused;
static LIST_HEAD(workers);
static DEFINE_MUTEX(workers_lock);

static void object_free_rcu(struct rcu_head *rcu)
{
	kmem_cache_free(objects, container_of(rcu, struct object, rcu));
	atomic_long_dec(&alive);
}

/* Frees an object that is on no list and only the caller's; a worker that still reads it is inside RCU. */
static void object_free(struct object *object)
{
	WRITE_ONCE(*object->slot, NULL);
	call_rcu(&object->rcu, object_free_rcu);
}

static int slot_fill(struct worker *worker, struct object **slot)
{
	struct object *object = object_alloc(worker->group);
	int err;

	if (!object)
		return -ENOMEM;
	atomic_long_inc(&alive);
	object->slot = slot;
	WRITE_ONCE(*slot, object);
	err = lists_add(object);
	if (err) {
		atomic_long_inc(&refused);
		object_free(object);
	}
	return err;
}

/* Removes the slot's object from its list; NULL if there is none, or reclaim has isolated it. */
static struct object *slot_take(struct object **slot)
{
	struct object *object;

	rcu_read_lock();
	object = READ_ONCE(*slot);
	if (object && !lists_del(object))
		object = NULL;
	rcu_read_unlock();
	return object;
}

static int put_back(struct object *object)
{
	int err = lists_add(object);

	if (err) {
		atomic_long_inc(&refused);
		object_free(object);
	}
	return err;
}

static int fill(struct worker *worker, unsigned long n)
{
	if (worker->slots || !n)
		return -EINVAL;
	worker->slots = kvcalloc(n, sizeof(*worker->slots), GFP_KERNEL);
	if (!worker->slots)
		return -ENOMEM;
	worker->nr_slots = n;
	for (unsigned long i = 0; i < n; i++) {
		/* Failed adds are counted. */
		slot_fill(worker, &worker->slots[i]);
		cond_resched();
	}
	return 0;
}

static int churn(struct worker *worker, unsigned long n)
{
	unsigned long taken = 0, made = 0, freed = 0;

	if (!worker->slots)
		return -EINVAL;
	for (unsigned long i = 0; i < n; i++) {
		u32 random = prandom_u32_state(&worker->rnd);
		struct object **slot = &worker->slots[(random >> 2) % worker->nr_slots];
		struct object *object = slot_take(slot);

		if (object && random & 3) {
			taken++;
			put_back(object);
		} else if (object) {
			freed++;
			object_free(object);
		} else if (!READ_ONCE(*slot) && !slot_fill(worker, slot)) {
			made++;
		}
		cond_resched();
	}
	scnprintf(worker->said, sizeof(worker->said), "put_back %lu freed %lu made %lu\n", taken, freed, made);
	return 0;
}

static int pairs(struct worker *worker, unsigned long n, unsigned long span)
{
	unsigned long done = 0, at = 0;
	u64 begin, ns;

	if (!worker->slots || !span || span > worker->nr_slots)
		return -EINVAL;
	begin = ktime_get_ns();
	/* As in slot_take(), but entered for many pairs, so that the time of one is that of the lists. */
	rcu_read_lock();
	for (unsigned long i = 0; i < n; i++) {
		struct object *object = READ_ONCE(worker->slots[at]);

		if (object && lists_del(object)) {
			put_back(object);
			done++;
		}
		at = at + 1 == span ? 0 : at + 1;
		if (!(i % 1024)) {
			rcu_read_unlock();
			cond_resched();
			rcu_read_lock();
		}
	}
	rcu_read_unlock();
	ns = ktime_get_ns() - begin;
	scnprintf(worker->said, sizeof(worker->said), "pairs %lu ns %llu ns_per_pair %llu\n", done, ns, div64_u64(ns, done ?: 1));
	return 0;
}

static void empty(struct worker *worker)
{
	for (unsigned long i = 0; i < worker->nr_slots; i++) {
		struct object *object = slot_take(&worker->slots[i]);

		if (object)
			object_free(object);
		cond_resched();
	}
}

static void say_count(struct worker *worker)
{
	scnprintf(worker->said, sizeof(worker->said), "count %lu\n", lists_count());
}

static ssize_t load_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	struct worker *worker = file->private_data;
	unsigned long n, span;
	char text[64];
	int err;

	if (len >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, len))
		return -EFAULT;
	text[len] = 0;
	mutex_lock(&worker->lock);
	scnprintf(worker->said, sizeof(worker->said), "done\n");
	if (sscanf(text, "fill %lu", &n) == 1) {
		err = fill(worker, n);
	} else if (sscanf(text, "churn %lu", &n) == 1) {
		err = churn(worker, n);
	} else if (sscanf(text, "pairs %lu %lu", &n, &span) == 2) {
		err = pairs(worker, n, span);
	} else if (!strncmp(text, "empty", 5)) {
		empty(worker);
		err = 0;
	} else if (!strncmp(text, "count", 5)) {
		say_count(worker);
		err = 0;
	} else {
		err = -EINVAL;
	}
	mutex_unlock(&worker->lock);
	return err ?: len;
}

static ssize_t load_read(struct file *file, char __user *to, size_t len, loff_t *pos)
{
	struct worker *worker = file->private_data;
	unsigned long left;

	/* Each read is a whole result; there is no file position. */
	mutex_lock(&worker->lock);
	len = min(len, strlen(worker->said));
	left = copy_to_user(to, worker->said, len);
	mutex_unlock(&worker->lock);
	return left ? -EFAULT : len;
}

static int load_open(struct inode *inode, struct file *file)
{
	struct worker *worker = kzalloc(sizeof(*worker), GFP_KERNEL);

	if (!worker)
		return -ENOMEM;
	worker->group = group_of_current();
	if (IS_ERR(worker->group)) {
		int err = PTR_ERR(worker->group);

		kfree(worker);
		return err;
	}
	mutex_init(&worker->lock);
	prandom_seed_state(&worker->rnd, (unsigned long)worker);
	scnprintf(worker->said, sizeof(worker->said), "nothing\n");
	mutex_lock(&workers_lock);
	/* Its objects stay cached when the file is closed, so the worker stays until the module is removed. */
	list_add(&worker->all, &workers);
	mutex_unlock(&workers_lock);
	file->private_data = worker;
	return 0;
}

static const struct proc_ops load_ops = {
	.proc_open = load_open,
	.proc_read = load_read,
	.proc_write = load_write,
	.proc_lseek = noop_llseek,
};

static int load_begin(void)
{
	objects = KMEM_CACHE(object, SLAB_ACCOUNT);
	return objects ? 0 : -ENOMEM;
}

static int load_open_to_all(void)
{
	return proc_create(NAME, 0600, NULL, &load_ops) ? 0 : -ENOMEM;
}

/* After this only reclaim uses the lists. */
static void load_close(void)
{
	remove_proc_entry(NAME, NULL);
}

/* After the lists are freed. */
static void load_end(void)
{
	struct worker *worker, *next;

	rcu_barrier();
	pr_info(NAME ": end: %ld objects left, %ld adds refused\n", atomic_long_read(&alive), atomic_long_read(&refused));
	list_for_each_entry_safe(worker, next, &workers, all) {
		kvfree(worker->slots);
		kfree(worker);
	}
	kmem_cache_destroy(objects);
}
