/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The time of a switch. Reading CLOCK_MONOTONIC is the dearest thing that a switch would do (80 ns, 130 among other
 * work), and the scheduler has just read a clock: that of the run queue. How far the two are apart is found anew each
 * millisecond. What passes between both readings makes that too much, never too little, so the least one counts; but
 * no longer than clocks stay together, which may drift apart by a thousandth (time servers shift one by half of that).
 */
#ifndef PG_CLOCK_H
#define PG_CLOCK_H

#define COMPARED_NS 1000000 /* how long a comparison holds */
#define DRIFT_SHIFT 10
#define JUMP_NS 50000 /* no drift and no delay: one clock was set */

/* Compare the clocks; the monotonic one. */
static __noinline u64 compare_clocks(struct cpu *c, u64 clock)
{
	u64 now = bpf_ktime_get_ns();
	s64 ahead = now - clock, more = ahead - c->ahead, drift = (clock - c->compared) >> DRIFT_SHIFT;
	if (!c->compared || more < drift || more > drift + JUMP_NS)
		c->ahead = ahead;
	else
		c->ahead += drift;
	c->compared = clock;
	return now;
}

/* CLOCK_MONOTONIC in `sched_switch`; it never goes back on one CPU. */
static __always_inline u64 switch_time(struct cpu *c, struct task_struct *prev)
{
	if (!asked || !bpf_core_field_exists(prev->se.cfs_rq))
		return bpf_ktime_get_ns();
	u64 clock = prev->se.cfs_rq->rq->clock;
	if (!clock)
		return bpf_ktime_get_ns();
	u64 now = clock - c->compared < COMPARED_NS ? clock + c->ahead : compare_clocks(c, clock);
	if (now < c->switched)
		now = c->switched;
	c->switched = now;
	return now;
}

/* CLOCK_MONOTONIC, read just `now` on this CPU: when what its thread does is. The switch to the thread was before that; if
 * the time that was told for it is later, what the clocks are apart was found too much by as much. */
static __always_inline u64 after_switch(struct cpu *c, u64 now)
{
	if (now < c->switched) {
		if (c->switched - now < JUMP_NS)
			c->ahead -= c->switched - now;
		return c->switched;
	}
	return now;
}

/* From then to `now`. The clock of the CPU that told `then` may be ahead by what a comparison takes: then none. Arithmetic
 * only, as in `ones`. */
static __always_inline u64 since(u64 then, u64 now)
{
	s64 d = now - then;
	return d & ~(d >> 63);
}

#endif
