/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Messages over sockets, added up by thread, socket and direction, and sent when the segment ends. A machine
 * that passes messages faster than records of them can be taken in has those of several segments added up.
 */
#ifndef PG_USES_H
#define PG_USES_H

#define TOKENS 2048
#define TOKEN_SHIFT 16		/* one in 65.5 us: 15,000 records a second on each CPU */
#define USES_AGE 200000000	/* most time that messages wait to be sent while their thread runs, ns */

/* Verified on its own: within the loop below its branches would multiply. */
int __noinline send_flow(struct flow *f, struct object *o, u32 direction, u32 tid, u32 tgid)
{
	if (!f || !o || !f->count)
		return 0;
	struct rec_use *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
	} else {
		e->type = REC_USE;
		e->kind = o->kind;
		e->direction = direction;
		e->pad = 0;
		e->tid = tid;
		e->tgid = tgid;
		e->first = f->first;
		e->last = f->last;
		e->count = f->count;
		e->bytes = f->bytes;
		e->position = f->position;
		e->id = o->id;
		e->peer = o->peer;
		bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	}
	f->count = 0;
	return 0;
}

/* Send everything. `end`: now, at the end of a segment, else 0. */
static __noinline void send_uses(struct uses *u, u32 tid, u32 tgid, u64 end)
{
	for (u32 direction = 0; direction < 2; direction++) {
		u64 bits = u->dirty[direction];
		u->dirty[direction] = 0;
		for (int i = 0; i < SLOTS; i++) {
			if (!bits)
				break;
			u32 at = ones((bits & -bits) - 1);
			bits &= bits - 1;
			struct use *s = &u->slot[BOUND(at, SLOTS)];
			/* A time that was not read may be early (see time_of_message). No message is received before it
			 * was sent: rather the end of the segment, which comes right after. */
			if (direction && u->skipped && end - s->flow[1].last < 1000000)
				s->flow[1].last = end;
			send_flow(&s->flow[direction], &u->object[BOUND(at, SLOTS)], direction, tid, tgid);
		}
	}
}

/* May `n` records of messages be sent now? */
static __always_inline bool tokens(struct cpu *c, u32 n, u64 now)
{
	if (!c)
		return true;
	u64 more = (now - c->tokens_at) >> TOKEN_SHIFT;
	if (more) {
		more += c->tokens;
		c->tokens = more > TOKENS ? TOKENS : more;
		c->tokens_at = now;
	}
	if (c->tokens < n)
		return false;
	c->tokens -= n;
	return true;
}

/* The segment of the thread ends. */
static __always_inline void leave_uses(struct thread *t, struct task_struct *task, struct cpu *c, u64 now)
{
	struct uses *u = bpf_task_storage_get(&uses, task, 0, 0);
	if (!u)
		return;
	u->ahead = 0;
	if (u->collected || !(u->dirty[0] | u->dirty[1]))
		return;
	if (tokens(c, ones(u->dirty[0]) + ones(u->dirty[1]), now) || now - u->oldest > USES_AGE) {
		send_uses(u, task->pid, task->tgid, now);
	} else {
		t->left = 1;
		count(COUNT_LEFT);
	}
}

/* Messages of a thread that is never switched out are sent in time, too. Runs in an interrupt. */
static __always_inline void overdue_uses(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = task->pid ? known_thread(task) : 0;
	if (!t || !t->has_uses)
		return;
	struct uses *u = bpf_task_storage_get(&uses, task, 0, 0);
	if (!u || u->busy || u->collected || !(u->dirty[0] | u->dirty[1]))
		return;
	if (bpf_ktime_get_ns() - u->oldest > 10000000)
		send_uses(u, task->pid, task->tgid, 0);
}

/* A thread sleeps with messages that were not sent. It may be woken meanwhile: `collected` tells it. */
static __noinline void collect_uses(struct thread *t, struct task_struct *task)
{
	struct uses *u = bpf_task_storage_get(&uses, task, 0, 0);
	if (!u)
		return;
	u->collected = 1;
	if (__sync_lock_test_and_set(&t->left, 0))
		send_uses(u, task->pid, task->tgid, 0);
	u->collected = 0;
}

#endif
