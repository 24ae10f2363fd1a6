/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Timers that system calls arm: who armed the one that wakes somebody later. Seen where the timer is prepared, not
 * where it is started: the kernel starts one of its own nearly each time a CPU leaves its idle loop.
 */
#ifndef PG_TIMER_H
#define PG_TIMER_H

#define NR_ALARM 37
#define NR_SETITIMER 38
#define NR_TIMER_SETTIME 223
#define NR_TIMERFD_SETTIME 286

/* The current thread, in the system call `nr`, arms the timer `o`. */
static __always_inline void armed(struct task_struct *task, u16 nr, struct object *o)
{
	struct rec_call *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
		return;
	}
	e->type = REC_CALL;
	e->kind = o->kind;
	e->call = nr;
	e->tid = task->pid;
	e->tgid = task->tgid;
	e->start = e->end = bpf_ktime_get_ns();
	e->result = 0;
	e->count = 1;
	e->op = 0;
	e->pad = 0;
	e->id = o->id;
	e->peer = o->peer;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* timerfd_settime and timer_settime prepare their timer each time; other calls that come here sleep. */
SEC("tp_btf/hrtimer_setup")
int BPF_PROG(on_timer_setup, struct hrtimer *timer)
{
	struct task_struct *task = bpf_get_current_task_btf();
	if (!task->pid || (task->flags & NO_USER))
		return 0;
	struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 nr = r->orig_ax;
	if ((nr != NR_TIMERFD_SETTIME && nr != NR_TIMER_SETTIME) || call_of(task, nr) != nr)
		return 0;
	struct cpu *c = this_cpu();
	if (!c || in_interrupt(c) || task->tgid == own_tgid)
		return 0;
	struct object o = { .kind = K_TIMER, .id = task->tgid };
	if (nr == NR_TIMERFD_SETTIME) {
		/* A timer that is stopped is prepared, too: its `it_value` is zero. */
		u64 value[2];
		if (!bpf_probe_read_user(value, sizeof(value), (void *)(r->dx + 16)) && !value[0] && !value[1])
			return 0;
		o.kind = K_NONE;
		fd_object(&o, number(task), r->di, ROOM_TASK);
	}
	armed(task, nr, &o);
	return 0;
}

/* setitimer and alarm. */
SEC("tp_btf/itimer_state")
int BPF_PROG(on_itimer, int which, struct itimerspec64 *value)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 nr = r->orig_ax;
	/* The other two count CPU time; a value of zero stops the timer. */
	if (which || (!value->it_value.tv_sec && !value->it_value.tv_nsec) || task->tgid == own_tgid)
		return 0;
	if ((nr != NR_SETITIMER && nr != NR_ALARM) || call_of(task, nr) != nr)
		return 0;
	struct object o = { .kind = K_TIMER, .id = task->tgid };
	armed(task, nr, &o);
	return 0;
}

#endif
