/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Timers that system calls arm: who armed the one that wakes somebody later. */
#ifndef PG_TIMER_H
#define PG_TIMER_H

#define NR_ALARM 37
#define NR_SETITIMER 38
#define NR_TIMER_SETTIME 223
#define NR_TIMERFD_SETTIME 286

/* Every high-resolution timer that is started comes here: all but those of four calls are left at once. */
SEC("tp_btf/hrtimer_start")
int BPF_PROG(on_timer_start, struct hrtimer *timer)
{
	struct task_struct *task = bpf_get_current_task_btf();
	if (!task->pid || (task->flags & NO_USER))
		return 0;
	struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 nr = r->orig_ax;
	if (nr != NR_TIMERFD_SETTIME && nr != NR_SETITIMER && nr != NR_ALARM && nr != NR_TIMER_SETTIME)
		return 0;
	if (call_of(task, nr) != nr)
		return 0;
	struct cpu *c = this_cpu();
	if (!c || c->irq || c->softirq || c->timer || task->tgid == own_tgid)
		return 0;
	struct object o = { .kind = K_TIMER, .id = task->tgid };
	if (nr == NR_TIMERFD_SETTIME) {
		o.kind = K_NONE;
		fd_object(0, task, &o, r->di, ROOM_TASK);
	}
	struct rec_call *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
		return 0;
	}
	e->type = REC_CALL;
	e->kind = o.kind;
	e->call = nr;
	e->tid = task->pid;
	e->tgid = task->tgid;
	e->start = e->end = bpf_ktime_get_ns();
	e->result = 0;
	e->count = 1;
	e->op = 0;
	e->pad = 0;
	e->id = o.id;
	e->peer = o.peer;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
