/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What is known of a unit's age while probes are not set: user space takes them out for a while where they cost more than
 * they may (tracer/src/guards/windows.rs). Included by guard.bpf.c.
 *
 * A unit that begins as its thread gets the CPU back from its boundary wait begins then, probes or not. But the next one may
 * begin unseen, where that wait does not block. So a unit is never said to be older than it must be: it counts from the
 * last moment at which its thread may have come by a boundary with no probe there. Nobody comes by one while asleep.
 */
#ifndef PG_SIGHT_H
#define PG_SIGHT_H

struct sight {
	u64 on;		/* all probes are set since then; 0: they are not; 1: they ever were, or there are none */
	u64 suspects;	/* how often a unit was met that may take too long, or may be several, while they were not */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sight);
} sight SEC(".maps");

/* Of all guarded threads, by the CPU. */
struct usage {
	u64 cpu;	/* ns that they had one */
	u64 lit;	/* of these, with the probes set */
	u64 probed;	/* ns that probes took, as they were measured */
	/* Times from one wait that blocked to the next with no probe behind it, each one unit or several: */
	u64 in_time;	/* of which none can have taken too long, */
	u64 unsure;	/* or one may have */
};
_Static_assert(sizeof(struct usage) == 40, "layout.rs");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct usage);
} usages SEC(".maps");

static __always_inline u64 lit_since(void)
{
	u32 zero = 0;
	struct sight *s = bpf_map_lookup_elem(&sight, &zero);
	return s ? *(volatile u64 *)&s->on : 0;
}

static __always_inline struct usage *usage_here(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&usages, &zero);
}

/* The thread had the CPU until now. */
static __always_inline void had_cpu(struct unit *u, u64 now, u64 on)
{
	struct usage *here = usage_here();
	if (here && u->got && now > u->got) {
		here->cpu += now - u->got;
		u64 from = u->got > on ? u->got : on;
		if (on && now > from)
			here->lit += now - from;
	}
	u->got = now;
}

static __always_inline void probe_took(u64 ns)
{
	struct usage *here = usage_here();
	if (here)
		here->probed += ns;
}

static __always_inline void count_unseen(bool in_time)
{
	struct usage *here = usage_here();
	if (!here)
		return;
	if (in_time)
		here->in_time++;
	else
		here->unsure++;
}

/* Nobody knows whether the unit, which is older than it may be if it is one, is one. */
static __always_inline void suspect(struct unit *u, u64 now, u64 threshold)
{
	u64 known = u->first + u->waited + u->ready + u->stolen;
	u32 zero = 0;
	struct sight *s = bpf_map_lookup_elem(&sight, &zero);
	if (s && !s->on && now > known && now - known > threshold)
		__sync_fetch_and_add(&s->suspects, 1);
}

#endif
