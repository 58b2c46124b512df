/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The Rust side, rust/src/lib.rs: lists per group and per node, and their shrinker. */
#ifndef LOWWATER_H
#define LOWWATER_H

#include <linux/types.h>

struct lowwater;
struct lowwater_group;

/* Part of an object that can be on a list; zero in a new object. */
struct lowwater_links {
	void *words[3];
};

/* NULL without memory. */
struct lowwater *lowwater_start(int nodes);
/* Frees all objects that are still on a list. All groups must be freed before. */
void lowwater_stop(struct lowwater *lw);

/* Creates a group below parent, or below the root. NULL without memory, or if the name exists. */
struct lowwater_group *lowwater_group_new(struct lowwater *lw, struct lowwater_group *parent, const char *name, size_t len);
/* Its objects become its parent's. */
void lowwater_group_free(struct lowwater_group *group);

/* 0, -EEXIST, -ENOMEM. May take a spin lock, and allocates a list with GFP_ATOMIC for the first object of a group on a node. */
int lowwater_add(struct lowwater *lw, struct lowwater_links *links, struct lowwater_group *group, int node);
/* Call it inside RCU, or where no other thread can free the object. True: it was on a list, and belongs to the caller now. */
bool lowwater_del(struct lowwater *lw, struct lowwater_links *links);

/* For struct shrinker. */
unsigned long lowwater_count(struct lowwater *lw, int node);
unsigned long lowwater_scan(struct lowwater *lw, int node, unsigned long objects, unsigned long *scanned);

/* The number of objects that wait for RCU or are being freed; at least 1 while a request is open. */
unsigned long lowwater_waiting(void);
/* The notification after a grace period. */
void lowwater_readers_left(void);

/* Implemented by the embedder: takes back an object that was on a list. RCU readers may still read it. */
void lowwater_object_free(struct lowwater_links *links);

/* shim.c: waits until no object waits for RCU, and the last work has returned. At the end, when no thread retires more. */
void lowwater_shim_drain(void);
/* shim.c: the number of live allocations of the Rust side. */
long lowwater_shim_allocations(void);
/* shim.c: the bytes that kmalloc has reserved for them. */
long lowwater_shim_allocated(void);
/* shim.c: the number of allocations that failed because of fail_every. */
long lowwater_shim_refusals(void);

#endif
