/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The time of a switch. Reading CLOCK_MONOTONIC is the dearest thing that a switch would do (80 ns, 130 among other
 * work), and the scheduler has just read a clock: that of the run queue. Where switches follow one another closely, that
 * one is taken, and how far the two are apart is found anew each millisecond. What passes between both readings makes
 * that too much, never too little, and just after a CPU was idle by several microseconds: a thread would seem to send
 * before it came. So after a pause the monotonic clock is read several times first, and the least that was found counts;
 * but no longer than clocks stay together, which may drift apart (time servers shift one by up to 500 in a million).
 */
#ifndef PG_CLOCK_H
#define PG_CLOCK_H

#define COMPARED_NS 1000000 /* how long a comparison holds */
#define PAUSE_NS 200000	    /* no switch for so long: a few readings more are of no weight */
#define READINGS 4	    /* after one */
#define DRIFT_SHIFT 13
#define JUMP_NS 5000 /* more than drift and delay: one clock was set, or is shifted fast */

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
	u64 clock = prev->se.cfs_rq->rq->clock, now = clock + c->ahead;
	if (!clock)
		return bpf_ktime_get_ns();
	if (now - c->switched > PAUSE_NS)
		c->readings = READINGS;
	if (c->readings || clock - c->compared >= COMPARED_NS) {
		now = compare_clocks(c, clock);
		if (c->readings)
			c->readings--;
	}
	if (now < c->switched)
		now = c->switched;
	c->switched = now;
	return now;
}

/* CLOCK_MONOTONIC, read just `now` on this CPU. Its last switch was before that; if the time that was told for it is later,
 * what the clocks are apart was found too much by as much. (That switch is told already. What a thread did just before it
 * came it did then, as who reads it knows.) */
static __always_inline void after_switch(struct cpu *c, u64 now)
{
	s64 late = c->switched - now;
	if (late > 0 && late < JUMP_NS)
		c->ahead -= late;
}

/* From then to `now`. The clock of the CPU that told `then` may be ahead by what a comparison takes: then none. Arithmetic
 * only, as in `ones`. */
static __always_inline u64 since(u64 then, u64 now)
{
	s64 d = now - then;
	return d & ~(d >> 63);
}

#endif
