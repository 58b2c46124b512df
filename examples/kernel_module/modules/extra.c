// SPDX-License-Identifier: GPL-2.0
// For the modules on lowwater's lists: inline functions of the kernel that Rust cannot call.

#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched.h>

int lowwater_node_of(const void *object);
struct mem_cgroup *lowwater_memcg_get(void);
bool lowwater_memcg_is_root(struct mem_cgroup *memcg);
unsigned short lowwater_memcg_id(struct mem_cgroup *memcg);
bool lowwater_memcg_is_dying(struct mem_cgroup *memcg);
struct mem_cgroup *lowwater_memcg_parent(struct mem_cgroup *memcg);
void lowwater_memcg_hold(struct mem_cgroup *memcg);
void lowwater_memcg_put(struct mem_cgroup *memcg);

/* The node of an object from kmalloc. */
int lowwater_node_of(const void *object)
{
	return page_to_nid(virt_to_page(object));
}

struct mem_cgroup *lowwater_memcg_get(void)
{
	return get_mem_cgroup_from_mm(current->mm);
}

bool lowwater_memcg_is_root(struct mem_cgroup *memcg)
{
	return !memcg || !parent_mem_cgroup(memcg);
}

unsigned short lowwater_memcg_id(struct mem_cgroup *memcg)
{
	return mem_cgroup_id(memcg);
}

/* Set before the notifiers of the control group's end are called. */
bool lowwater_memcg_is_dying(struct mem_cgroup *memcg)
{
	return css_is_dying(&memcg->css);
}

/* The parent, without a reference: the child holds one. */
struct mem_cgroup *lowwater_memcg_parent(struct mem_cgroup *memcg)
{
	return parent_mem_cgroup(memcg);
}

void lowwater_memcg_hold(struct mem_cgroup *memcg)
{
	css_get(&memcg->css);
}

void lowwater_memcg_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}
