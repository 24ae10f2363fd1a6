/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Passes over threads: at the start, over those that are blocked already or want a CPU; four times a second, over waits
 * that have become long; at the end, over waits that go on. Before the start, one that only finds out whether this CPU can be
 * asked what it is at (context.h).
 */
#ifndef PG_PASS_H
#define PG_PASS_H

/* Names the user stack of a blocked thread. The stack itself is copied by the collector, who can reach every
 * page of it. A function of its own: its part of the stack is not there while the object is looked at. */
static __noinline void seed_stack(struct thread *t, struct regs *r, u32 tid, u32 tgid, u64 now)
{
	u64 key = stack_key(tid, r->ip, r->sp);
	struct rec_stack_small *u = bpf_ringbuf_reserve(&stacks, sizeof(*u), 0);
	if (u) {
		u->head.type = REC_USTACK;
		u->head.flags = F_SEEDED;
		u->head.cpu = 0;
		u->head.tid = tid;
		u->head.tgid = tgid;
		u->head.time = now;
		u->head.key = key;
		u->head.kernel_stack = 0;
		u->head.len = 0;
		u->head.regs = *r;
		bpf_ringbuf_submit(u, BPF_RB_NO_WAKEUP);
		t->user_stack = key;
	} else {
		count(LOST_STACKS);
	}
}

/* The word that a thread waits on, if it is shared and was not found to be so yet. */
static __noinline void shared_word_of(struct thread *t, struct task_struct *task)
{
	if (t->object.kind != K_FUTEX || (t->op & FUTEX_PRIVATE) || (t->object.peer & SHARED_WORD))
		return;
	shared_word(&t->object, task, ROOM_ITER);
	t->told = 0;
}

/* A thread that was blocked before the recorder came. Its memory can be read: the iterator may sleep. */
static __always_inline void seed(struct thread *t, struct task_struct *task, u32 state, u64 now)
{
	u32 tid = task->pid, tgid = task->tgid;
	t->object.kind = K_NONE;
	t->object.fd = ~0U;
	t->runnable = 0;
	t->call = NO_CALL;
	t->flags = F_SEEDED;
	t->woken = 0;
	t->state = off_state(state, task);
	if (task->flags & NO_USER) {
		t->flags |= F_KERNEL;
		t->off = now;
		return;
	}
	struct regs *r = load_regs(task, ROOM_ITER);
	if (!r)
		return;
	u64 nr = call_of(task, r->orig_ax);
	if (nr < NO_CALL) {
		t->call = nr;
		if (t->state == OFF_INTERRUPTIBLE || t->state == OFF_UNINTERRUPTIBLE) {
			struct scratch *s = scratch(ROOM_ITER);
			if (s) {
				fetch(true, task, r, s, blocked_class(t));
				waits_on(t, r, number(task), tgid | (u64)ROOM_ITER << 32, now);
				shared_word_of(t, task);
			}
		}
	}
	seed_stack(t, r, tid, tgid, now);
	t->off = now;
}

/* A thread that waits for a CPU when the recorder comes: it may not get one for long, and is seen only then. */
static __always_inline void seed_runnable(struct thread *t, struct task_struct *task, u64 now)
{
	t->run_nr = NO_CALL;
	t->run_stack = 0;
	t->run_flags = task->flags & NO_USER ? F_KERNEL : 0;
	t->woken = 0;
	t->runnable = 1;
	t->off = now;
	/* It got one meanwhile. */
	if (task->on_cpu)
		t->off = 0;
}

/*
 * A long wait on an epoll instance: what was added to it since its members were sent, last before the wait as a rule, is what
 * it waits for.
 */
static __noinline void members_again(struct thread *t, struct task_struct *task, u64 now)
{
	if (t->object.kind != K_EPOLL)
		return;
	struct object o = { .kind = K_NONE };
	u64 file = file_of(task, t->object.fd);
	if (file)
		file_object(&o, file, ROOM_ITER);
	if (o.kind != K_EPOLL || o.id != t->object.id)
		return;
	u64 hash = name_hash(&o, 99);
	bpf_map_delete_elem(&sent, &hash);
	send_epoll(&o, file, now, ROOM_ITER);
}

static __noinline void report_wait(struct thread *t, struct task_struct *task, u8 flag, u64 now)
{
	u64 kernel_stack = 0;
	if (kernel_stacks && (!(t->flags & F_KERNEL) || t->state != OFF_IDLE))
		kernel_stack = kernel_stack_of(task, ROOM_ITER);
	struct rec_off *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
		return;
	}
	fill_off(e, t, task->pid, task->tgid, now);
	e->cpu = bpf_get_smp_processor_id();
	if (t->runnable) {
		e->state = OFF_RUNNABLE;
		e->flags = t->run_flags;
		e->call = t->run_nr;
		e->kind = K_NONE;
		e->user_stack = t->run_stack;
	}
	/* The last to wake it may have done so while it ran: that is of no wait. */
	e->woken = t->woken >= t->off ? t->woken : 0;
	e->kernel_stack = kernel_stack;
	e->flags |= flag;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* A wait to write to a terminal whose output somebody paused (Ctrl-S, tcflow(3)): told by its operation. */
static __noinline void output_paused(struct thread *t, struct task_struct *task)
{
	if (t->object.kind != K_TTY || t->runnable || blocked_class(t) != C_FD_SEND)
		return;
	struct file *f = (void *)file_of(task, t->object.fd);
	struct tty_file_private *p = READ(f, private_data);
	struct tty_struct *tty = READ(p, tty);
	u32 paused = READ(tty, flow.stopped) ? TTY_PAUSED : 0;
	if (t->op == paused)
		return;
	t->op = paused;
	t->told = 0;
}

SEC("iter.s/task")
int on_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct control *c = controls();
	if (asked && c && c->pass == PASS_FIND) {
		/* This is no interrupt: if it looked like one, CPUs could not be asked. */
		struct cpu *cpu = this_cpu();
		if (cpu && !interrupts(cpu) && cpu->section)
			count(COUNT_FOUND);
		return 0;
	}
	if (!task || !c || !task->pid || task->tgid == own_tgid)
		return 0;
	u64 now = bpf_ktime_get_ns();
	struct thread *t;
	if (c->pass == PASS_SEED) {
		u32 state = task->__state;
		if (task->on_cpu)
			return 0;
		t = thread_of(task);
		if (!t || t->off)
			return 0;
		if (state)
			seed(t, task, state, now);
		else
			seed_runnable(t, task, now);
		return 0;
	}
	t = known_thread(task);
	if (!t)
		return 0;
	if (t->left && (c->pass == PASS_FLUSH || (t->off && now - t->off > 20000000)))
		collect_uses(t, task);
	if (c->pass == PASS_USES || !t->off || t->off >= now || (!t->runnable && t->state == OFF_DEAD))
		return 0;
	frozen_asleep(t, task);
	output_paused(t, task);
	if (c->pass == PASS_FLUSH) {
		report_wait(t, task, F_OPEN, now);
	} else if (c->pass == PASS_LONG) {
		if (t->reported || t->runnable || t->state == OFF_IDLE || (t->flags & F_KERNEL) ||
		    now - t->off < long_wait_ns)
			return 0;
		t->reported = 1;
		shared_word_of(t, task);
		members_again(t, task, now);
		report_wait(t, task, F_LONG, now);
	}
	return 0;
}

#endif
