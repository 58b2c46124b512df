// SPDX-License-Identifier: MIT OR Apache-2.0
// A cache whose lists are lowwater's: per memory control group and per node, under a real shrinker.

#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/shrinker.h>

#include "lowwater.h"

#define NAME "lowwater"

/* A memory control group, and lowwater's group for it. */
struct group {
	struct list_head all;
	struct mem_cgroup *memcg;
	struct lowwater_group *lowwater;
};

struct object {
	struct lowwater_links links;
	struct object **slot;
	struct group *group;
	struct rcu_head rcu;
};

static struct lowwater *lowwater;
static struct shrinker *shrinker;
static LIST_HEAD(groups);
static DEFINE_MUTEX(groups_lock);

static struct group *group_of_current(void);
static struct object *object_alloc(struct group *group);
static int lists_add(struct object *object);
static bool lists_del(struct object *object);
static unsigned long lists_count(void);

#include "load.h"

static struct group *group_new(struct mem_cgroup *memcg)
{
	struct group *group = kzalloc(sizeof(*group), GFP_KERNEL);
	char name[24];

	if (!group)
		return ERR_PTR(-ENOMEM);
	snprintf(name, sizeof(name), "%d", memcg ? memcg->css.id : 0);
	group->lowwater = lowwater_group_new(lowwater, NULL, name, strlen(name));
	if (!group->lowwater) {
		kfree(group);
		return ERR_PTR(-ENOMEM);
	}
	group->memcg = memcg;
	list_add(&group->all, &groups);
	return group;
}

/* The group of the calling task, created on first use. It keeps the control group's id from being reused. */
static struct group *group_of_current(void)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(current->mm);
	struct group *group;

	mutex_lock(&groups_lock);
	list_for_each_entry(group, &groups, all)
		if (group->memcg == memcg) {
			mem_cgroup_put(memcg);
			goto out;
		}
	group = group_new(memcg);
	if (IS_ERR(group))
		mem_cgroup_put(memcg);
out:
	mutex_unlock(&groups_lock);
	return group;
}

static struct object *object_alloc(struct group *group)
{
	struct object *object = kmem_cache_alloc(objects, GFP_KERNEL | __GFP_ZERO);

	if (object)
		object->group = group;
	return object;
}

static int lists_add(struct object *object)
{
	int node = page_to_nid(virt_to_page(object));

	return lowwater_add(lowwater, &object->links, object->group->lowwater, node);
}

static bool lists_del(struct object *object)
{
	return lowwater_del(lowwater, &object->links);
}

void lowwater_object_free(struct lowwater_links *links)
{
	object_free(container_of(links, struct object, links));
}

static unsigned long count(struct shrinker *shrinker, struct shrink_control *sc)
{
	return lowwater_count(lowwater, sc->nid) ?: SHRINK_EMPTY;
}

static unsigned long scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long scanned = 0, freed = lowwater_scan(lowwater, sc->nid, sc->nr_to_scan, &scanned);

	if (!scanned)
		return SHRINK_STOP;
	sc->nr_scanned = scanned;
	return freed;
}

static unsigned long lists_count(void)
{
	unsigned long sum = 0;
	int node;

	for_each_online_node(node)
		sum += lowwater_count(lowwater, node);
	return sum;
}

static void stop(void)
{
	struct group *group, *next;

	list_for_each_entry_safe(group, next, &groups, all) {
		lowwater_group_free(group->lowwater);
		mem_cgroup_put(group->memcg);
		kfree(group);
	}
	lowwater_stop(lowwater);
	lowwater_shim_drain();
	pr_info(NAME ": %ld allocations left, %ld refused\n", lowwater_shim_allocations(), lowwater_shim_refusals());
}

static int __init cache_init(void)
{
	int err = load_begin();

	if (err)
		return err;
	err = -ENOMEM;
	lowwater = lowwater_start(nr_node_ids);
	if (!lowwater)
		goto no_lowwater;
	shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE, NAME);
	if (!shrinker)
		goto no_shrinker;
	shrinker->count_objects = count;
	shrinker->scan_objects = scan;
	shrinker_register(shrinker);
	err = load_open_to_all();
	if (!err)
		return 0;
	shrinker_free(shrinker);
no_shrinker:
	stop();
no_lowwater:
	load_end();
	return err;
}

static void __exit cache_exit(void)
{
	load_close();
	shrinker_free(shrinker);
	rcu_barrier();
	pr_info(NAME ": %lu on lists, %ld alive\n", lists_count(), atomic_long_read(&alive));
	stop();
	load_end();
}

module_init(cache_init);
module_exit(cache_exit);
MODULE_DESCRIPTION("A cache whose lists are lowwater's");
MODULE_LICENSE("Dual MIT/GPL");
