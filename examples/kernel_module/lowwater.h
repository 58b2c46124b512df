/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The Rust side, rust/src/lib.rs: lists per group and per node, and their shrinker. */
#ifndef LOWWATER_H
#define LOWWATER_H

#include <linux/types.h>

struct lowwater;
struct lowwater_group;

/* Inside an object that can be on a list; zero when it is made. */
struct lowwater_links {
	void *words[3];
};

/* NULL without memory. */
struct lowwater *lowwater_start(int nodes);
/* Frees what is still on a list. All groups are freed before. */
void lowwater_stop(struct lowwater *lw);

/* Below parent, or below the root. NULL without memory, or if there is one of that name. */
struct lowwater_group *lowwater_group_new(struct lowwater *lw, struct lowwater_group *parent, const char *name, size_t len);
/* What it holds is its parent's from here on. */
void lowwater_group_free(struct lowwater_group *group);

/* 0, -EEXIST, -ENOMEM. May take a spin lock, and allocates a list with GFP_ATOMIC for the first object of a group on a node. */
int lowwater_add(struct lowwater *lw, struct lowwater_links *links, struct lowwater_group *group, int node);
/* Inside RCU, or where nobody else can free the object. True: it was on a list, and is the caller's now. */
bool lowwater_del(struct lowwater *lw, struct lowwater_links *links);

/* For struct shrinker. */
unsigned long lowwater_count(struct lowwater *lw, int node);
unsigned long lowwater_scan(struct lowwater *lw, int node, unsigned long objects, unsigned long *scanned);

/* What waits for RCU; and RCU's answer. */
unsigned long lowwater_waiting(void);
void lowwater_readers_left(void);

/* From the embedder: an object that was on a list is the embedder's again. RCU readers may still look at it. */
void lowwater_object_free(struct lowwater_links *links);

/* shim.c: waits until nothing waits for RCU any more. At the end, when nobody makes more. */
void lowwater_shim_drain(void);
/* shim.c: how many pieces of memory the Rust side has. */
long lowwater_shim_allocations(void);
/* shim.c: how many it was refused, because of fail_every. */
long lowwater_shim_refusals(void);

#endif
