/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The frame that a given unit began in: is it there still? Included by guard.bpf.c. */
#ifndef PG_FRAME_H
#define PG_FRAME_H

/* Farther than this is another stack. */
#define STACK_REACH (8ULL << 20)

/* Units that end with a call of a function: was it left? The same stack is used above its frame, or something else was
 * pushed where its return address lay. */
static __always_inline bool frame_left(struct unit *u, u64 sp)
{
	if (sp >= u->frame && sp - u->frame < STACK_REACH)
		return true;
	u64 there = 0;
	return !bpf_probe_read_user(&there, sizeof(there), (void *)u->frame) && there != u->caller;
}

/* Its end was not come by: nothing is known of how long it took. */
static __always_inline void abandon(struct unit *u)
{
	u->running = 0;
	struct guarded_loop *l = bpf_map_lookup_elem(&loops, &u->loop);
	if (l)
		__sync_fetch_and_add(&l->abandoned, 1);
}

/* At another moment than its begin and end. */
static __always_inline bool is_gone(struct unit *u, u64 sp)
{
	/* At its entry, the stack pointer is the frame. */
	if (!u->returns || !frame_left(u, sp - 8))
		return false;
	abandon(u);
	return true;
}

#endif
