// SPDX-License-Identifier: MIT OR Apache-2.0
// The report on deferred work, in a guest: a shrinker with a fixed number of objects. Measures how
// many of them one call asks to scan, first with nothing deferred, and then with the work that
// calls without __GFP_FS have deferred. Loading the module runs it; its figures are one JSON object
// in the log.
//
// For a call, the module writes to memory.reclaim of the root group, and reclaim begins with the
// lightest priority, 12. Reclaim that finds too little continues with heavier ones, for which the
// shrinker reports no objects: its deferred work stays as it is. deferred_by_one shows the priority:
// 878 of 1,800,000 objects, 1,800,000 / 4,096 * 4 / 2, are the part at priority 12.

#include <linux/fs.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/shrinker.h>

#define NAME "deferred"

static unsigned long objects = 1800000;
module_param(objects, ulong, 0444);
MODULE_PARM_DESC(objects, "Objects of the shrinker");

static long deferred = 1000000;
module_param(deferred, long, 0444);
MODULE_PARM_DESC(deferred, "Objects to defer at least");

static struct task_struct *task;
static struct file *reclaim_file;
static char figures[512];
static int length;
/* Calls of the current reclaim, and objects that the first of them asked to scan. */
static unsigned long calls, asked;

static unsigned long count(struct shrinker *shrinker, struct shrink_control *sc)
{
	return current == task && !calls++ ? objects : 0;
}

/* Frees nothing, so that the number of objects stays. */
static unsigned long scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	if (!(sc->gfp_mask & __GFP_FS))
		return SHRINK_STOP;
	asked += sc->nr_to_scan;
	return 0;
}

/* Returns how many objects are deferred. A shrinker without nodes has one counter. */
static long owed(struct shrinker *shrinker)
{
	return atomic_long_read(&shrinker->nr_deferred[0]);
}

/* Reclaims a page, or fails to; only the first call of the shrinker counts. */
static int reclaim(void)
{
	loff_t start = 0;
	ssize_t written;

	calls = 0;
	asked = 0;
	written = kernel_write(reclaim_file, "4096", 4, &start);
	if (written < 0 && written != -EAGAIN)
		return written;
	return calls ? 0 : -EIO;
}

/* Adds the figures of a shrinker with batches of that many objects; 0 is the kernel's default. */
static int measure(const char *name, long batch)
{
	struct shrinker *shrinker = shrinker_alloc(0, NAME);
	long asked_none, deferred_none, one = 0, reclaims = 0, before;
	int err;

	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = count;
	shrinker->scan_objects = scan;
	shrinker->batch = batch;
	shrinker_register(shrinker);

	err = reclaim();
	asked_none = asked;
	deferred_none = owed(shrinker);
	while (!err && owed(shrinker) < deferred) {
		unsigned int flags = memalloc_nofs_save();

		err = reclaim();
		memalloc_nofs_restore(flags);
		if (!reclaims++)
			one = owed(shrinker) - deferred_none;
		cond_resched();
	}
	before = owed(shrinker);
	if (!err)
		err = reclaim();
	length += scnprintf(figures + length, sizeof(figures) - length,
			    "\"%s\":{\"asked_none\":%ld,\"deferred_none\":%ld,\"deferred_by_one\":%ld,\"reclaims_nofs\":%ld,"
			    "\"deferred\":%ld,\"asked\":%lu,\"deferred_after\":%ld},",
			    name, asked_none, deferred_none, one, reclaims, before, asked, owed(shrinker));
	shrinker_free(shrinker);
	return err;
}

static int __init deferred_init(void)
{
	int err;

	task = current;
	reclaim_file = filp_open("/sys/fs/cgroup/memory.reclaim", O_WRONLY, 0);
	if (IS_ERR(reclaim_file))
		return PTR_ERR(reclaim_file);
	err = measure("batch_default", 0) ?: measure("batch_1024", 1024);
	if (!err)
		pr_notice(NAME ": {%s\"objects\":%lu,\"load\":\"deferred\"}\n", figures, objects);
	filp_close(reclaim_file, NULL);
	return err;
}

static void __exit deferred_exit(void)
{
}

module_init(deferred_init);
module_exit(deferred_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Deferred work of a shrinker");
