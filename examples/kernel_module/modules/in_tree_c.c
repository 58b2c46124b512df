// SPDX-License-Identifier: GPL-2.0
// For in_tree.rs, on a kernel with ../in-tree.patch: the end of control groups, and the bit of a shrinker.

#include <linux/memcontrol.h>
#include <linux/notifier.h>

int lowwater_notifier_register(void);
void lowwater_notifier_unregister(void);
void lowwater_set_shrinker_bit(struct mem_cgroup *memcg, int node, int shrinker);
/* in_tree.rs */
void lowwater_memcg_ended(struct mem_cgroup *memcg);

static int ended(struct notifier_block *block, unsigned long action, void *memcg)
{
	lowwater_memcg_ended(memcg);
	return NOTIFY_OK;
}

static struct notifier_block notifier = { .notifier_call = ended };

int lowwater_notifier_register(void)
{
	return memcg_offline_notifier_register(&notifier);
}

void lowwater_notifier_unregister(void)
{
	memcg_offline_notifier_unregister(&notifier);
}

void lowwater_set_shrinker_bit(struct mem_cgroup *memcg, int node, int shrinker)
{
	set_shrinker_bit(memcg, node, shrinker);
}
