/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Alarms that are withdrawn. A unit is taken for the type it has come by most of, of equals for the one that may take least
 * (algorithm 2). What tells it to be of a slower one may come when the time was spent already. So a unit that comes by
 * that, and has taken no longer than this type may, did not take too long: what was counted is taken back, its stack stays
 * as evidence, and the alarm of the type that it was taken for is as if it had not rung.
 *
 * A type of which alarms are withdrawn again and again is in doubt for a while, twice as long with each: what exceeds its
 * threshold is counted, and told when it ends, or has taken as long as any type may. Included by guard.bpf.c.
 */
#ifndef PG_WITHDRAW_H
#define PG_WITHDRAW_H

/* In `withdrawn` of a unit: user space was told of it. */
#define EVIDENT 0x100u

/* May a unit of this type still turn out to be of another one, as others did lately? */
static __always_inline bool is_doubtful(struct guarded_loop *l, struct guarded_type *t, u64 now, u64 elapsed)
{
	return now < t->doubt_until && elapsed <= l->settles;
}

/* As if it had not rung: what comes next is told. */
static __always_inline void unring(struct alarm *a, u64 now, u64 shortest)
{
	a->period /= 2;
	a->quiet_until = now;
	if (a->period < shortest)
		a->period = a->worst = 0;
}

static __always_inline void doubt(struct guarded_type *t, u64 now, struct control *c)
{
	u64 next = t->doubt * 2;
	if (!next || (now > t->doubt_until && now - t->doubt_until > next * 2))
		next = c->period_ns;
	t->doubt = next < c->longest_ns ? next : c->longest_ns;
	t->doubt_until = now + t->doubt;
}

/* The current thread's unit, of which an alarm was counted, has turned out to be of another type. */
static __noinline int withdraw(struct unit *u, u64 now)
{
	struct control *c = settings();
	struct guarded_loop *l = u ? bpf_map_lookup_elem(&loops, &u->loop) : 0;
	if (!u || !c || !l)
		return 0;
	u64 elapsed = elapsed_of(u, now);
	if (elapsed > type_of(l, u->best)->threshold)
		return 0;
	u32 of = u->counted_as < TYPES ? u->counted_as : TYPES;
	struct guarded_type *t = &l->types[of];
	__sync_fetch_and_add(&t->violations, -1);
	u32 evident = u->withdrawn & EVIDENT;
	if (u->told == TOLD) {
		evident = EVIDENT;
		unring(u->slow == STARVED ? &t->alarm[0] : &t->alarm[1], now, c->period_ns);
		doubt(t, now, c);
		struct rec_life *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
		if (r) {
			head(&r->head, REC_WITHDRAWN, u->tid, u->tgid, u->loop, now);
			r->start = u->start;
			r->elapsed = elapsed;
			r->other = u->number;
			r->of = u->best;
			bpf_ringbuf_submit(r, 0);
		} else {
			lose();
		}
	}
	u->withdrawn = (of + 1) | evident;
	u->told = UNTOLD;
	u->slow = IN_TIME;
	u->counted_as = NO_TYPE;
	return 0;
}

/* A unit ended that had not taken too long after all. */
static __always_inline void count_withdrawn(struct guarded_loop *l, struct unit *u)
{
	u32 of = (u->withdrawn & (EVIDENT - 1)) - 1;
	__sync_fetch_and_add(&type_of(l, of)->withdrawn, 1);
}

#endif
