// SPDX-License-Identifier: MIT OR Apache-2.0
// The same cache with the kernel's own list_lru, for comparison, in two versions: the group of an object is looked up in the slab, as for dentries
// and inodes, or with known=1 stored in the object, as for lowwater. The second is cheaper, and is what lowwater is compared with.

#include <linux/list_lru.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/shrinker.h>

#define NAME "lowwater_peer"

/* A memory control group; for known=1. */
struct group {
	struct mem_cgroup *memcg;
	struct list_head all;
};

struct object {
	struct list_head links;
	struct object **slot;
	struct group *group;
	struct rcu_head rcu;
};

static struct list_lru lru;
static struct shrinker *shrinker;
static LIST_HEAD(groups);
static DEFINE_MUTEX(groups_lock);
static bool known;
module_param(known, bool, 0444);
MODULE_PARM_DESC(known, "Objects know their control group");

static struct group *group_of_current(void);
static struct object *object_alloc(struct group *group);
static int lists_add(struct object *object);
static bool lists_del(struct object *object);
static unsigned long lists_count(void);

#include "load.h"

static struct group *group_of_current(void)
{
	struct group *group = kzalloc(sizeof(*group), GFP_KERNEL);

	if (!group)
		return ERR_PTR(-ENOMEM);
	group->memcg = get_mem_cgroup_from_mm(current->mm);
	mutex_lock(&groups_lock);
	list_add(&group->all, &groups);
	mutex_unlock(&groups_lock);
	return group;
}

static struct object *object_alloc(struct group *group)
{
	struct object *object = kmem_cache_alloc_lru(objects, &lru, GFP_KERNEL | __GFP_ZERO);

	if (object) {
		object->group = group;
		INIT_LIST_HEAD(&object->links);
	}
	return object;
}

static int lists_add(struct object *object)
{
	bool added;

	if (!known)
		return list_lru_add_obj(&lru, &object->links) ? 0 : -EEXIST;
	rcu_read_lock();
	added = list_lru_add(&lru, &object->links, page_to_nid(virt_to_page(object)), object->group->memcg);
	rcu_read_unlock();
	return added ? 0 : -EEXIST;
}

static bool lists_del(struct object *object)
{
	bool was_on;

	if (!known)
		return list_lru_del_obj(&lru, &object->links);
	rcu_read_lock();
	was_on = list_lru_del(&lru, &object->links, page_to_nid(virt_to_page(object)), object->group->memcg);
	rcu_read_unlock();
	return was_on;
}

static unsigned long lists_count(void)
{
	return list_lru_count(&lru);
}

static enum lru_status isolate(struct list_head *item, struct list_lru_one *list, spinlock_t *lock, void *old)
{
	list_lru_isolate_move(list, item, old);
	return LRU_REMOVED;
}

static void free_all(struct list_head *old)
{
	struct object *object, *next;

	list_for_each_entry_safe(object, next, old, links) {
		list_del_init(&object->links);
		object_free(object);
	}
}

static unsigned long count(struct shrinker *shrinker, struct shrink_control *sc)
{
	return list_lru_shrink_count(&lru, sc) ?: SHRINK_EMPTY;
}

static unsigned long scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	LIST_HEAD(old);
	unsigned long freed = list_lru_shrink_walk(&lru, sc, isolate, &old);

	free_all(&old);
	return freed;
}

static void free_groups(void)
{
	struct group *group, *next;

	list_for_each_entry_safe(group, next, &groups, all) {
		mem_cgroup_put(group->memcg);
		kfree(group);
	}
}

static int __init peer_init(void)
{
	int err = load_begin();

	if (err)
		return err;
	err = -ENOMEM;
	shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE | SHRINKER_MEMCG_AWARE, NAME);
	if (!shrinker)
		goto no_shrinker;
	err = list_lru_init_memcg(&lru, shrinker);
	if (err)
		goto no_lru;
	shrinker->count_objects = count;
	shrinker->scan_objects = scan;
	shrinker_register(shrinker);
	err = load_open_to_all();
	if (!err)
		return 0;
	list_lru_destroy(&lru);
no_lru:
	shrinker_free(shrinker);
no_shrinker:
	load_end();
	return err;
}

static void __exit peer_exit(void)
{
	int node;

	load_close();
	shrinker_free(shrinker);
	rcu_barrier();
	pr_info(NAME ": %lu on lists, %ld alive\n", lists_count(), atomic_long_read(&alive));
	for_each_online_node(node) {
		LIST_HEAD(old);
		unsigned long all = ULONG_MAX;

		list_lru_walk_node(&lru, node, isolate, &old, &all);
		free_all(&old);
	}
	list_lru_destroy(&lru);
	free_groups();
	load_end();
}

module_init(peer_init);
module_exit(peer_exit);
MODULE_DESCRIPTION("The same cache with the kernel's list_lru");
MODULE_LICENSE("Dual MIT/GPL");
