// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The programs of the recorder. One record per off-CPU interval, sent when the thread is switched in
 * again; what it waited on is read when it is switched out, who woke it when it is woken.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "records.h"
#include "mix.h"
#include "state.h"
#include "lane.h"
#include "object.h"
#include "files.h"
#include "call.h"
#include "set.h"
#include "ring.h"
#include "mapping.h"
#include "target.h"
#include "stack.h"
#include "context.h"
#include "clock.h"
#include "disk.h"
#include "quota.h"
#include "work.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline struct thread *thread_of(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline struct thread *known_thread(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, 0, 0);
}

/* Bring the thread's focus flag up to date. */
static __always_inline void refresh_focus(struct thread *t, u32 tgid)
{
	struct control *c = controls();
	if (!c || t->focus_generation == c->focus_generation)
		return;
	t->in_focus = bpf_map_lookup_elem(&focus, &tgid) != 0;
	t->focus_generation = c->focus_generation;
}

static __always_inline u8 off_state(u32 state, struct task_struct *task)
{
	if (state & 0xb0) /* EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD */
		return OFF_DEAD;
	if (state & 8)
		return OFF_TRACED;
	if (state & 4)
		return OFF_STOPPED;
	if ((state & TASK_FROZEN) || (task->jobctl & JOBCTL_TRAP_FREEZE))
		return OFF_FROZEN;
	if ((state & 2) && (state & 0x400))
		return OFF_IDLE;
	if (state & 1)
		return OFF_INTERRUPTIBLE;
	return OFF_UNINTERRUPTIBLE;
}

/*
 * The freezer of control groups (version 1) and of suspend leaves a thread in a sleep that may be frozen where it is: it
 * does not come back from that before it is thawed, whatever would have woken it.
 */
static __always_inline void frozen_asleep(struct thread *t, struct task_struct *task)
{
	if (!(task->__state & TASK_FROZEN) || !t->off || t->runnable || t->state == OFF_FROZEN)
		return;
	t->state = OFF_FROZEN;
	t->told = 0;
}

#include "uses.h"

/* Send the run of equal system calls of the thread. */
static __noinline void flush_calls(struct thread *t, u32 tid, u32 tgid)
{
	if (!t->run_count)
		return;
	struct rec_call *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
	} else {
		e->type = REC_CALL;
		e->kind = t->run_object.kind;
		e->call = t->run_call;
		e->tid = tid;
		e->tgid = tgid;
		e->start = t->run_start;
		e->end = t->run_end;
		e->result = t->run_result;
		e->count = t->run_count;
		e->op = t->run_op;
		e->pad = 0;
		e->id = t->run_object.id;
		e->peer = t->run_object.peer;
		bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	}
	t->run_count = 0;
}

/* The key of the user stack of `task`, the current thread: a copy is sent unless one was lately. */
static __always_inline u64 stack_of(struct thread *t, struct task_struct *task, struct pt_regs *r, u32 tid, u32 tgid,
				    u64 now)
{
	if (!user_stacks)
		return 0;
	u64 key = known_stack(t, r, tid, now);
	if (key)
		return key;
	struct regs *all = load_regs(task, ROOM_SCHED);
	return all ? user_stack(t, all, tid, tgid, now) : 0;
}

/* The thread leaves the CPU, but does not wait: it was preempted, or yields. */
static __always_inline void leave_runnable(struct thread *t, struct task_struct *task, bool preempt, u32 tid, u32 tgid,
					   u64 now)
{
	t->runnable = 1;
	t->run_nr = NO_CALL;
	t->run_stack = 0;
	t->run_flags = task->flags & NO_USER ? F_KERNEL : 0;
	if (preempt || t->run_flags)
		return;
	struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 nr = call_of(task, r->orig_ax);
	if (nr < NO_CALL)
		t->run_nr = nr;
	if (nr != 24) /* sched_yield */
		return;
	refresh_focus(t, tgid);
	t->run_stack = stack_of(t, task, r, tid, tgid, now);
}

/* The thread begins to wait: on what? Every field of `wait` is written. */
static __always_inline void begin_wait(struct thread *t, struct task_struct *task, u32 state, u32 tid, u32 tgid, u64 now)
{
	t->object.id = 0;
	t->object.peer = 0;
	t->object.kind = K_NONE;
	t->object.fd = ~0U;
	t->timeout = 0;
	t->user_stack = 0;
	t->op = 0;
	t->value = 0;
	t->call = NO_CALL;
	t->state = off_state(state, task);
	t->flags = 0;
	if (task->flags & NO_USER) {
		t->flags = F_KERNEL;
		return;
	}
	if (t->state == OFF_DEAD)
		return;
	struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 nr = call_of(task, r->orig_ax);
	if (nr < NO_CALL)
		t->call = nr;
	refresh_focus(t, tgid);
	if (t->call != NO_CALL && (t->state == OFF_INTERRUPTIBLE || t->state == OFF_UNINTERRUPTIBLE) &&
	    !waits_on_known(t, task, r, now)) {
		struct scratch *s = scratch(ROOM_SCHED);
		struct regs *all = load_regs(task, ROOM_SCHED);
		if (s && all) {
			fetch(false, task, all, s, blocked_class(t));
			waits_on(t, all, number(task), tgid | (u64)ROOM_SCHED << 32, now);
		}
	}
	if (t->call == ENTER_CALL)
		ring_requests(t, number(task), r->di, r->r10 & BY_NUMBER, ROOM_SCHED);
	t->user_stack = stack_of(t, task, r, tid, tgid, now);
}

static __noinline void tell(struct thread *t, u32 tid, u32 tgid, u64 kernel_stack, u64 now);

static __always_inline void switch_out(struct task_struct *task, struct cpu *c, u32 tid, u32 tgid, bool preempt,
				       u32 state, u64 now)
{
	struct thread *t = thread_of(task);
	if (!t) {
		count(LOST_EVENTS);
		return;
	}
	/* A wait whose end the kernel did not report ended when the thread was woken, at the latest now. One that
	 * began to run while it was being seeded had none. */
	if (t->off && !t->runnable && !(t->flags & F_SEEDED)) {
		tell(t, tid, tgid, 0, t->woken > t->off ? t->woken : now);
		t->woken = 0;
	}
	t->off = now;
	t->reported = 0;
	t->runnable = 0;
	if (messages && c->talked) {
		c->talked = 0;
		leave_uses(t, task, c, now);
	}
	if (t->run_count)
		flush_calls(t, tid, tgid);
	if (preempt || !state) {
		leave_runnable(t, task, preempt, tid, tgid, now);
		return;
	}
	for (int i = 0; i < WAIT_WORDS; i++)
		c->before[i] = t->wait[i];
	begin_wait(t, task, state, tid, tgid, now);
	u64 other = 0;
	for (int i = 0; i < WAIT_WORDS; i++)
		other |= t->wait[i] ^ c->before[i];
	if (other)
		t->told = 0;
}

/* Fill the record of an interval. */
static __always_inline void fill_off(struct rec_off *e, struct thread *t, u32 tid, u32 tgid, u64 now)
{
	e->type = REC_OFF;
	e->state = t->state;
	e->context = t->woken ? t->context : CTX_NONE;
	e->flags = t->flags;
	e->tid = tid;
	e->time = now;
	e->start = t->off;
	e->woken = t->woken;
	e->tgid = tgid;
	bool woken = t->woken;
	e->waker = woken ? t->waker : 0;
	e->waker_tgid = woken ? t->waker_tgid : 0;
	e->call = t->call;
	e->waker_call = woken ? t->waker_call : NO_CALL;
	e->kind = t->object.kind;
	e->waker_kind = woken ? t->waker_object.kind : K_NONE;
	e->op = t->op;
	e->value = t->value;
	e->fd = t->object.fd;
	e->timeout = t->timeout;
	e->id = t->object.id;
	e->peer = t->object.peer;
	e->waker_id = t->waker_object.id;
	e->waker_peer = t->waker_object.peer;
	e->user_stack = t->user_stack;
	e->waker_stack = t->waker_stack;
}

/* Send the whole record of an interval; later ones may refer to it. */
static __noinline void tell(struct thread *t, u32 tid, u32 tgid, u64 kernel_stack, u64 now)
{
	t->told = 0;
	struct place place;
	struct rec_off *e = lane_reserve(&place, sizeof(*e));
	if (!e)
		return;
	fill_off(e, t, tid, tgid, now);
	e->cpu = place.cpu;
	e->kernel_stack = kernel_stack;
	lane_submit(&place);
	t->told = 1;
	t->rewoken = !t->woken;
}

static __always_inline void fill_again(struct rec_again *e, struct thread *t, u8 type, u32 cpu, u32 tid,
				       u64 kernel_stack, u64 now)
{
	e->type = type;
	e->pad = 0;
	e->cpu = cpu;
	e->tid = tid;
	e->time = now;
	e->waited = since(t->off, now);
	e->woken_ago = since(t->woken, now);
	e->kernel_stack = kernel_stack;
}

/* Send the interval as a reference to the last one. */
static __always_inline void tell_again(struct thread *t, u32 tid, u64 kernel_stack, u64 now)
{
	struct place place;
	if (!t->rewoken) {
		struct rec_again *e = lane_reserve(&place, sizeof(*e));
		if (!e) {
			t->told = 0;
			return;
		}
		fill_again(e, t, REC_AGAIN, place.cpu, tid, kernel_stack, now);
		lane_submit(&place);
		return;
	}
	struct rec_rewoken *e = lane_reserve(&place, sizeof(*e));
	if (!e) {
		t->told = 0;
		return;
	}
	fill_again(&e->again, t, REC_REWOKEN, place.cpu, tid, kernel_stack, now);
	e->waker_id = t->waker_object.id;
	e->waker_peer = t->waker_object.peer;
	e->waker_stack = t->waker_stack;
	e->waker = t->waker;
	e->waker_tgid = t->waker_tgid;
	e->waker_call = t->waker_call;
	e->context = t->context;
	e->waker_kind = t->waker_object.kind;
	e->pad = 0;
	lane_submit(&place);
	t->rewoken = 0;
}

/*
 * The kernel stack of a wait. Unwinding one takes 2 us; a thread that waits again for another program, by the
 * same call on the same kind of object, waits in the same place. Waits for disks, locks of the kernel, devices
 * and files are looked at each time. (Where on its stack it waits says nothing: the kernel moves that at random.)
 */
static __always_inline u64 waited_in(struct thread *t, struct task_struct *task, u64 now)
{
	u64 key = (u64)t->op << 32 | (u64)t->object.kind << 16 | t->call;
	bool like = t->state == OFF_INTERRUPTIBLE && t->object.kind >= K_FUTEX && t->object.kind <= K_EPOLL;
	if (like && t->kernel_stack_key == key && now - t->kernel_stack_time < memo_ns)
		return t->kernel_stack;
	t->kernel_stack = kernel_stack_of(task, ROOM_SCHED);
	t->kernel_stack_key = like ? key : 0;
	t->kernel_stack_time = now;
	return t->kernel_stack;
}

/* A thread comes that was not seen to leave. If it was woken since it came the last time, it had waited: for
 * what, its registers say in part; since when is not known. */
static __noinline void left_unseen(struct thread *t, struct task_struct *task, u64 now)
{
	bool waited = t->in && t->woken > t->in && !(task->flags & NO_USER);
	if (waited) {
		struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(task);
		u64 nr = call_of(task, r->orig_ax);
		for (int i = 0; i < WAIT_WORDS; i++)
			t->wait[i] = 0;
		t->object.kind = K_NONE;
		t->object.fd = ~0U;
		t->call = nr < NO_CALL ? nr : NO_CALL;
		t->state = OFF_INTERRUPTIBLE;
		t->off = t->in;
		t->runnable = 0;
		t->reported = 0;
		t->told = 0;
	}
	t->in = now;
}

static __always_inline void switch_in(struct task_struct *task, u32 tid, u32 tgid, u64 now)
{
	struct thread *t = known_thread(task);
	if (!t)
		return;
	if (!t->off)
		left_unseen(t, task, now);
	if (!t->off)
		return;
	u64 waited = since(t->off, now);
	u64 ready = t->woken > t->off ? t->woken : t->off;
	if (since(ready, now) > QUOTA_DELAY_NS && (t->woken || t->runnable) && throttled(task, ready, now)) {
		if (t->runnable) {
			t->run_flags |= F_THROTTLED;
		} else {
			t->flags |= F_THROTTLED;
			t->told = 0;
		}
	}
	if (t->runnable) {
		struct place place;
		struct rec_run *e = lane_reserve(&place, sizeof(*e));
		if (e) {
			e->type = REC_RUN;
			e->flags = t->run_flags;
			e->cpu = place.cpu;
			e->tid = tid;
			e->time = now;
			e->start = t->off;
			e->tgid = tgid;
			e->call = t->run_nr;
			e->pad = 0;
			e->woken = t->woken;
			e->user_stack = t->run_stack;
			lane_submit(&place);
		}
	} else {
		t->awake = now;
		u64 kernel_stack = 0;
		/* A kernel thread without work waits for nothing. */
		if (kernel_stacks && waited > kernel_stack_ns && (!(t->flags & F_KERNEL) || t->state != OFF_IDLE))
			kernel_stack = waited_in(t, task, now);
		/* Very long ones, and wakings from before the wait, have no short form. */
		if (!t->told || t->woken < t->off || waited >> 32)
			tell(t, tid, tgid, kernel_stack, now);
		else
			tell_again(t, tid, kernel_stack, now);
	}
	if (messages && t->left)
		__sync_lock_test_and_set(&t->left, 0);
	t->off = 0;
	t->woken = 0;
	t->in = now;
}

/* Some kernels do not report every switch (Linux 6.18 in a VM: 1 in 200 under load; perf misses them too). */
static __always_inline void check_current(struct cpu *c, struct task_struct *prev, struct task_struct *next)
{
	if (c->current && c->current != (u64)prev)
		count(COUNT_UNREPORTED);
	c->current = (u64)next;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state)
{
	struct cpu *c = this_cpu();
	if (!c)
		return 0;
	u64 now = switch_time(c, prev);
	no_interrupt(c);
	check_current(c, prev, next);
	u32 tid = prev->pid, tgid = prev->tgid;
	if (tid && tgid != own_tgid)
		switch_out(prev, c, tid, tgid, preempt, state, now);
	tid = next->pid;
	tgid = next->tgid;
	if (tid && tgid != own_tgid)
		switch_in(next, tid, tgid, now);
	return 0;
}

/* `waker` is the current thread; its numbers are in `t` already. */
int __noinline note_waker(struct thread *t, struct regs *r, u64 waker)
{
	if (!t || !r)
		return 0;
	u32 tgid = t->waker_tgid;
	struct object o = { .kind = K_NONE };
	acted_on(&o, r, waker, tgid | (u64)ROOM_SCHED << 32);
	o.fd = 0;
	t->waker_object = o;
	return 0;
}

/* The current thread wakes another one: by what? What is remembered of itself is needed for its stack only. */
static __always_inline void wake_by(struct thread *t, struct task_struct *waker, u64 now)
{
	struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(waker);
	u64 nr = call_of(waker, r->orig_ax);
	if (nr >= NO_CALL)
		return;
	t->waker_call = nr;
	if (!acts_on_known(waker, &t->waker_object, r, nr, now)) {
		struct regs *all = load_regs(waker, ROOM_SCHED);
		if (all)
			note_waker(t, all, number(waker));
	}
	struct control *c = controls();
	bool wanted = t->in_focus || (t->off && since(t->off, now) > waker_stack_ns);
	if (!wanted && c && !c->focus_generation)
		return;
	struct thread *w = thread_of(waker);
	if (!w)
		return;
	refresh_focus(w, t->waker_tgid);
	if (wanted || w->in_focus)
		t->waker_stack = stack_of(w, waker, r, t->waker, t->waker_tgid, now);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	if (task->tgid == own_tgid)
		return 0;
	struct thread *t = thread_of(task);
	if (!t)
		return 0;
	frozen_asleep(t, task);
	u64 now = bpf_ktime_get_ns();
	struct task_struct *waker = bpf_get_current_task_btf();
	struct cpu *c = this_cpu();
	if (c)
		after_switch(c, now);
	u64 before[WAKE_WORDS];
	for (int i = 0; i < WAKE_WORDS; i++)
		before[i] = t->wake[i];
	t->woken = now;
	t->waker = waker->pid;
	t->waker_tgid = waker->tgid;
	t->waker_call = NO_CALL;
	t->waker_object = (struct object){ .kind = K_NONE };
	t->waker_stack = 0;
	t->context = context_now(c);
	if (t->context == CTX_HARDIRQ || t->context == CTX_SOFTIRQ)
		disk_waker(t, c, now);
	/* In an interrupt the thread is only the interrupted one, unless it sent the packet itself. */
	else if (t->waker && !(waker->flags & NO_USER) &&
	    (t->context == CTX_TASK || (t->context == CTX_NET_RX && c && sent_by_thread(c))))
		wake_by(t, waker, now);
	else if (t->context == CTX_TASK && (waker->flags & PF_WQ_WORKER) && !(task->flags & PF_WQ_WORKER))
		works_for(waker, now);
	if (asked && c && t->context == CTX_TASK && (task->flags & NO_USER))
		leaves_completions(c, task);
	u64 other = 0;
	for (int i = 0; i < WAKE_WORDS; i++)
		other |= t->wake[i] ^ before[i];
	if (other)
		t->rewoken = 1;
	return 0;
}

/* A thread that was just created waits for the CPU from here on. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	struct thread *t = thread_of(task);
	if (!t)
		return 0;
	u64 now = bpf_ktime_get_ns();
	t->off = now;
	t->woken = now;
	t->runnable = 1;
	t->run_nr = NO_CALL;
	return 0;
}

/* Where CPUs are not asked: who asked for packets to be delivered, a device or the thread that sends them? */
SEC("tp_btf/softirq_raise")
int BPF_PROG(on_softirq_raise, unsigned int vector)
{
	struct cpu *c = this_cpu();
	if (c && vector == BLOCK_VECTOR)
		completed_by(c);
	/* What packets cause that are being received is by who asked for those. */
	if (c && vector == NET_RX_VECTOR && (c->irq || !c->softirq))
		c->net_raised_by_irq = c->irq != 0;
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct rec_fork *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
		return 0;
	}
	e->type = REC_FORK;
	e->pad = 0;
	e->cpu = bpf_get_smp_processor_id();
	e->tid = parent->pid;
	e->time = bpf_ktime_get_ns();
	e->child = child->pid;
	e->child_tgid = child->tgid;
	bpf_core_read(e->comm, sizeof(e->comm), &child->comm);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	/* A child of the focus is in focus, before the collector says so. */
	struct thread *p = known_thread(parent);
	if (p && p->in_focus && parent->tgid != child->tgid) {
		u32 tgid = child->tgid, one = 1;
		bpf_map_update_elem(&focus, &tgid, &one, BPF_ANY);
	}
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	struct scratch *s = scratch(ROOM_TASK);
	if (!s)
		return 0;
	/* It may have taken the number of its process's first thread. */
	struct thread *t = known_thread(task);
	if (t)
		t->told = 0;
	struct rec_exec *e = &s->exec;
	e->type = REC_EXEC;
	e->pad = 0;
	e->cpu = bpf_get_smp_processor_id();
	e->tid = task->pid;
	e->time = bpf_ktime_get_ns();
	e->tgid = task->tgid;
	bpf_core_read(e->comm, sizeof(e->comm), &task->comm);
	u64 start = READ(task, mm, arg_start), end = READ(task, mm, arg_end);
	u32 len = end > start ? end - start : 0;
	if (len > ARGV_BYTES)
		len = ARGV_BYTES;
	e->len = 0;
	if (len && len <= ARGV_BYTES && !bpf_probe_read_user(e->argv, len, (void *)start))
		e->len = len;
	/* Called at once: what the process has mapped must be read before it is gone. */
	if (bpf_ringbuf_output(&events, e, sizeof(*e), BPF_RB_FORCE_WAKEUP))
		count(LOST_EVENTS);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	/* The collector forgets what it was told of the thread. */
	struct thread *t = known_thread(task);
	if (t)
		t->told = 0;
	struct rec_exit *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
		return 0;
	}
	e->type = REC_EXIT;
	e->pad = 0;
	e->cpu = bpf_get_smp_processor_id();
	e->tid = task->pid;
	e->time = bpf_ktime_get_ns();
	e->tgid = task->tgid;
	e->status = task->exit_code;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *comm)
{
	struct rec_rename *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
		return 0;
	}
	e->type = REC_RENAME;
	e->pad = 0;
	e->cpu = bpf_get_smp_processor_id();
	e->tid = task->pid;
	e->time = bpf_ktime_get_ns();
	e->tgid = task->tgid;
	e->pad2 = 0;
	bpf_probe_read_kernel_str(e->comm, sizeof(e->comm), comm);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal, int signal, struct kernel_siginfo *info, struct task_struct *task, int group, int result)
{
	struct task_struct *sender = bpf_get_current_task_btf();
	struct cpu *c = this_cpu();
	if (!sender->pid || (c && in_interrupt(c)))
		return 0;
	struct rec_signal *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
		return 0;
	}
	e->type = REC_SIGNAL;
	e->signal = signal;
	e->cpu = bpf_get_smp_processor_id();
	e->tid = sender->pid;
	e->time = bpf_ktime_get_ns();
	e->tgid = sender->tgid;
	e->target = task->pid;
	e->target_tgid = task->tgid;
	e->pad = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

#include "pass.h"
#include "python.h"
#include "sample.h"
#include "message.h"
#include "request.h"
#include "timer.h"
