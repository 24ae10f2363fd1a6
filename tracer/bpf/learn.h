/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Units that are learnt from: which functions they come by, how deep and how often, and when they had no CPU. */
#ifndef PG_LEARN_H
#define PG_LEARN_H

#define LEARNERS 1024 /* threads whose units' contexts are kept: the places below this in `units` */
#define CONTEXTS 512  /* different ones kept of a unit */
#define INDEX 1024    /* where to find them: a power of two */
#define TRIES 8

struct came_by {
	u32 function, depth;
	u32 times;
};

/* A unit that ended, with as many of `context` as `count` says. */
struct rec_unit {
	struct head head;
	u64 start, spent;
	u64 away, ready;  /* of its time: off the CPU; and of that ready to run, but without a CPU */
	u32 of, count;
	u32 more, pad;	  /* times that it came by a context for which there was no room */
	struct came_by context[CONTEXTS];
};
_Static_assert(sizeof(struct rec_unit) == 6216, "records.rs");

/* A call. Most lie no deeper below the loop. */
#define CALL_BYTES 4096
struct rec_call {
	struct head head;
	u32 depth, len;
	struct regs regs;
	u8 data[CALL_BYTES];
};

struct learnt {
	struct rec_unit unit;
	u32 index[INDEX]; /* place in `context` and 1 | low half of the unit's number << 16 */
};

/* Made one place long where nothing is learnt. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LEARNERS);
	__type(key, u32);
	__type(value, struct learnt);
} learnt SEC(".maps");

static __always_inline struct learnt *learnt_of(struct unit *u)
{
	return bpf_map_lookup_elem(&learnt, &u->slot);
}

/* The same again, as in a loop, is one context that was come by twice. */
static __always_inline void note_context(struct unit *u, u32 function, u32 depth)
{
	struct learnt *l = learnt_of(u);
	if (!l)
		return;
	u32 hash = mix(function, depth) >> 32, now = u->number << 16, n = u->contexts;
#pragma unroll
	for (u32 i = 0; i < TRIES; i++) {
		u32 *index = &l->index[(hash + i) & (INDEX - 1)], at = (*index & 0xffff) - 1;
		if ((*index ^ now) >> 16 || at >= n) {
			/* Of another unit. */
			if (n >= CONTEXTS)
				break;
			struct came_by *c = &l->unit.context[n];
			c->function = function;
			c->depth = depth;
			c->times = 1;
			*index = now | (n + 1);
			u->contexts = n + 1;
			return;
		}
		struct came_by *c = &l->unit.context[at & (CONTEXTS - 1)];
		if (c->function == function && c->depth == depth) {
			c->times++;
			return;
		}
	}
	u->more++;
}

/* The whole stack of a call, of which guards know function and depth. The number of the function is in `head.loop`. */
static __always_inline long tell_call(struct unit *u, u32 function, u32 depth, struct regs *regs)
{
	struct rec_call *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
	if (!r)
		return -1;
	r->head.type = REC_CALL;
	r->head.tid = u->tid;
	r->head.tgid = u->tgid;
	r->head.loop = function;
	r->head.time = u->frame;
	r->depth = depth;
	bpf_probe_read_kernel(&r->regs, sizeof(r->regs), regs);
	r->len = copy_stack(r->data, r->regs.sp, CALL_BYTES);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

static __always_inline long tell_unit(struct unit *u, u64 now)
{
	struct learnt *l = learnt_of(u);
	if (!l)
		return -1;
	struct rec_unit *r = &l->unit;
	r->head.type = REC_UNIT;
	r->head.tid = u->tid;
	r->head.tgid = u->tgid;
	r->head.loop = u->loop;
	r->head.time = now;
	r->start = u->start;
	r->spent = u->spent;
	r->away = u->away;
	r->ready = u->ready;
	r->of = u->best;
	r->more = u->more;
	r->pad = 0;
	u32 n = u->contexts;
	if (n > CONTEXTS)
		n = CONTEXTS;
	r->count = n;
	return bpf_ringbuf_output(&told, r, sizeof(*r) - sizeof(r->context) + n * sizeof(r->context[0]), 0);
}

#endif
