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
#include "state.h"
#include "object.h"
#include "call.h"
#include "set.h"
#include "mapping.h"
#include "target.h"
#include "stack.h"
#include "disk.h"
#include "quota.h"

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
	if ((state & 0x8000) || (task->jobctl & JOBCTL_TRAP_FREEZE))
		return OFF_FROZEN;
	if ((state & 2) && (state & 0x400))
		return OFF_IDLE;
	if (state & 1)
		return OFF_INTERRUPTIBLE;
	return OFF_UNINTERRUPTIBLE;
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

static __always_inline void switch_out(struct task_struct *task, struct cpu *c, u32 tid, u32 tgid, bool preempt,
				       u32 state, u64 now)
{
	struct thread *t = thread_of(task);
	if (!t) {
		count(LOST_EVENTS);
		return;
	}
	t->off = now;
	t->flags = 0;
	t->reported = 0;
	t->user_stack = 0;
	t->call = NO_CALL;
	t->object.kind = K_NONE;
	if (messages && t->has_uses)
		leave_uses(t, task, c, now);
	if (t->run_count)
		flush_calls(t, tid, tgid);
	if (task->flags & NO_USER) {
		t->flags = F_KERNEL;
		t->state = preempt || !state ? OFF_RUNNABLE : off_state(state, task);
		t->timeout = 0;
		t->op = 0;
		t->value = 0;
		return;
	}
	if (preempt) {
		t->state = OFF_RUNNABLE;
		return;
	}
	struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 nr = call_of(task, r->orig_ax);
	if (nr < NO_CALL)
		t->call = nr;
	refresh_focus(t, tgid);
	if (!state) {
		t->state = OFF_RUNNABLE;
		if (nr != 24) /* sched_yield */
			return;
	} else {
		t->state = off_state(state, task);
		if (t->state == OFF_DEAD)
			return;
		t->timeout = 0;
		t->op = 0;
		t->value = 0;
		t->object.fd = ~0U;
		if (t->call != NO_CALL && (t->state == OFF_INTERRUPTIBLE || t->state == OFF_UNINTERRUPTIBLE) &&
		    !waits_on_known(t, task, r, now)) {
			struct scratch *s = scratch(ROOM_SCHED);
			struct regs *all = load_regs(task, ROOM_SCHED);
			if (s && all) {
				fetch(false, task, all, s, blocked_class(t));
				waits_on(t, all, number(task), tgid | (u64)ROOM_SCHED << 32, now);
			}
		}
	}
	if (!user_stacks)
		return;
	t->user_stack = known_stack(t, r, tid, now);
	if (!t->user_stack) {
		struct regs *all = load_regs(task, ROOM_SCHED);
		if (all)
			t->user_stack = user_stack(t, all, tid, tgid, now);
	}
}

/* Fill the record of an interval. */
static __always_inline void fill_off(struct rec_off *e, struct thread *t, u32 tid, u32 tgid, u64 now)
{
	e->type = REC_OFF;
	e->state = t->state;
	e->context = t->context;
	e->flags = t->flags;
	e->tid = tid;
	e->time = now;
	e->start = t->off;
	e->woken = t->woken;
	e->tgid = tgid;
	e->waker = t->waker;
	e->waker_tgid = t->waker_tgid;
	e->call = t->call;
	e->waker_call = t->waker_call;
	e->cpu = bpf_get_smp_processor_id();
	e->kind = t->object.kind;
	e->waker_kind = t->waker_object.kind;
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

static __always_inline void switch_in(struct task_struct *task, u32 tid, u32 tgid, u64 now)
{
	struct thread *t = known_thread(task);
	if (!t || !t->off)
		return;
	u64 runnable = t->woken > t->off ? t->woken : t->off;
	if (now - runnable > QUOTA_DELAY_NS && (t->woken || t->state == OFF_RUNNABLE) && throttled(task, runnable, now))
		t->flags |= F_THROTTLED;
	if (t->state == OFF_RUNNABLE) {
		struct rec_run *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
		if (!e) {
			count(LOST_EVENTS);
		} else {
			e->type = REC_RUN;
			e->flags = t->flags;
			e->cpu = bpf_get_smp_processor_id();
			e->tid = tid;
			e->time = now;
			e->start = t->off;
			e->tgid = tgid;
			e->call = t->call;
			e->pad = 0;
			e->woken = t->woken;
			e->user_stack = t->user_stack;
			bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
		}
	} else {
		u64 kernel_stack = 0;
		if (kernel_stacks && now - t->off > kernel_stack_ns && !(t->flags & F_KERNEL))
			kernel_stack = kernel_stack_of(task, ROOM_SCHED);
		struct rec_off *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
		if (!e) {
			count(LOST_EVENTS);
		} else {
			fill_off(e, t, tid, tgid, now);
			e->kernel_stack = kernel_stack;
			bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
		}
	}
	if (messages && t->left)
		__sync_lock_test_and_set(&t->left, 0);
	t->off = 0;
	t->woken = 0;
	t->waker = 0;
	t->context = CTX_NONE;
	t->waker_stack = 0;
	t->waker_object.kind = K_NONE;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state)
{
	u64 now = bpf_ktime_get_ns();
	/* No interrupt outlasts a switch: whatever entry or exit was missed is forgotten here. */
	struct cpu *c = this_cpu();
	if (c) {
		c->softirq = 0;
		c->irq = 0;
		c->timer = 0;
	}
	u32 tid = prev->pid, tgid = prev->tgid;
	if (tid && tgid != own_tgid)
		switch_out(prev, c, tid, tgid, preempt, state, now);
	tid = next->pid;
	tgid = next->tgid;
	if (tid && tgid != own_tgid)
		switch_in(next, tid, tgid, now);
	return 0;
}

static __always_inline u8 context_now(struct cpu *c)
{
	if (!c)
		return CTX_TASK;
	if (c->timer)
		return CTX_TIMER;
	if (c->irq)
		return CTX_HARDIRQ;
	if (c->softirq)
		return c->softirq == 3 + 1 ? CTX_NET_RX : CTX_SOFTIRQ;
	return CTX_TASK;
}

/* `waker` is the current thread; its numbers are in `t` already. */
int __noinline note_waker(struct thread *t, struct thread *w, struct regs *r, u64 waker)
{
	if (!t || !w || !r)
		return 0;
	u32 tgid = t->waker_tgid;
	struct object o = { .kind = K_NONE };
	acted_on(w, &o, r, waker, tgid | (u64)ROOM_SCHED << 32);
	t->waker_object = o;
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	if (task->tgid == own_tgid)
		return 0;
	struct thread *t = thread_of(task);
	if (!t)
		return 0;
	u64 now = bpf_ktime_get_ns();
	struct task_struct *waker = bpf_get_current_task_btf();
	struct cpu *c = this_cpu();
	t->woken = now;
	t->waker = waker->pid;
	t->waker_tgid = waker->tgid;
	t->waker_call = NO_CALL;
	t->waker_object.kind = K_NONE;
	t->waker_stack = 0;
	t->context = context_now(c);
	if (t->context == CTX_HARDIRQ || t->context == CTX_SOFTIRQ) {
		disk_waker(t, c, now);
		return 0;
	}
	if (!t->waker || (waker->flags & NO_USER))
		return 0;
	/* In an interrupt the thread is only the interrupted one, unless it sent the packet itself. */
	if (t->context == CTX_TASK || (t->context == CTX_NET_RX && c && !c->net_raised_by_irq))
	{
		struct thread *w = thread_of(waker);
		struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(waker);
		u64 nr = call_of(waker, r->orig_ax);
		if (!w || nr >= NO_CALL)
			return 0;
		t->waker_call = nr;
		if (!acts_on_known(w, waker, &t->waker_object, r, nr)) {
			struct regs *all = load_regs(waker, ROOM_SCHED);
			if (all)
				note_waker(t, w, all, number(waker));
		}
		if (!user_stacks)
			return 0;
		refresh_focus(w, t->waker_tgid);
		if (!w->in_focus && !t->in_focus && (!t->off || now - t->off <= waker_stack_ns))
			return 0;
		t->waker_stack = known_stack(w, r, t->waker, now);
		if (!t->waker_stack) {
			struct regs *all = load_regs(waker, ROOM_SCHED);
			if (all)
				t->waker_stack = user_stack(w, all, t->waker, t->waker_tgid, now);
		}
	}
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
	t->state = OFF_RUNNABLE;
	t->call = NO_CALL;
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector)
{
	struct cpu *c = this_cpu();
	if (c)
		c->softirq = vector + 1;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector)
{
	struct cpu *c = this_cpu();
	if (c)
		c->softirq = 0;
	return 0;
}

/* Who asked for packets to be delivered: a device, or the thread that sends over the loopback. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(on_softirq_raise, unsigned int vector)
{
	if (vector != 3)
		return 0;
	struct cpu *c = this_cpu();
	if (c && (c->irq || !c->softirq))
		c->net_raised_by_irq = c->irq != 0;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_entry, int irq)
{
	struct cpu *c = this_cpu();
	if (c)
		c->irq++;
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_exit, int irq)
{
	struct cpu *c = this_cpu();
	if (c && c->irq)
		c->irq--;
	return 0;
}

static __always_inline void timer_begins(void)
{
	struct cpu *c = this_cpu();
	if (c)
		c->timer++;
}

static __always_inline void timer_ends(void)
{
	struct cpu *c = this_cpu();
	if (c && c->timer)
		c->timer--;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_hrtimer_entry, struct hrtimer *timer)
{
	timer_begins();
	if (messages)
		overdue_uses();
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(on_hrtimer_exit, struct hrtimer *timer)
{
	timer_ends();
	return 0;
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(on_timer_entry, struct timer_list *timer)
{
	timer_begins();
	return 0;
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(on_timer_exit, struct timer_list *timer)
{
	timer_ends();
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
	if (!sender->pid || context_now(this_cpu()) != CTX_TASK)
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
#include "sample.h"
#include "message.h"
#include "timer.h"
