/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Work queues. A kernel worker that wakes somebody acts for whoever queued what it executes: that is told
 * beside the wake-up. Nothing is traced where work begins or ends: what a worker has at hand is read from it
 * when it wakes somebody. So what this costs is one entry of a map for each piece of work that is queued (0.35 us;
 * a machine that writes a file and waits for it each time queues up to 6,000 pieces a second, one that fills a
 * terminal as fast as it goes 2,500: 0.2 % of one CPU).
 */
#ifndef PG_WORK_H
#define PG_WORK_H

/* Who asked for work, and when. Workers that hand work on to one another are told one by one: each may have
 * waited for something. */
struct queued {
	u32 tid, tgid; /* 0: a timer or an interrupt did, not for a disk request */
	u64 time;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct queued);
} works SEC(".maps");

/* What the worker `task` has at hand: the piece of work, and its function. */
static __always_inline u64 work_of(struct task_struct *task, u64 *function)
{
	struct kthread *k = task->worker_private;
	struct worker *w = READ(k, data);
	*function = (u64)READ(w, current_func);
	return (u64)READ(w, current_work);
}

SEC("tp_btf/workqueue_queue_work")
int BPF_PROG(on_queue_work, int cpu, struct pool_workqueue *pwq, struct work_struct *work)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 key = number(work);
	struct queued q = { .time = bpf_ktime_get_ns() };
	struct cpu *c = this_cpu();
	if (!c || task->tgid == own_tgid)
		return 0;
	if (!in_interrupt(c)) {
		q.tid = task->pid;
		q.tgid = task->tgid;
	} else if (just_completed(c, q.time)) {
		/* What is left to do for a disk request that was just completed. */
		u32 tid = c->disk_tid, tgid = c->disk_tgid;
		/* Not to be made one load of two sorts of pointers. */
		asm volatile("" : "+r"(tid), "+r"(tgid));
		q.tid = tid;
		q.tgid = tgid;
	}
	bpf_map_update_elem(&works, &key, &q, BPF_ANY);
	return 0;
}

static __noinline void send_work_name(struct object *o, u64 function)
{
	static const char symbol[] = "%ps";
	u64 hash;
	struct rec_name *r = new_name(o, NAME_TEXT, ROOM_SCHED, &hash);
	if (!r)
		return;
	bpf_snprintf(r->text, 64, symbol, &function, sizeof(function));
	send_name(r, 64, hash);
}

/* `waker`, the current thread, is a worker and wakes somebody at `now`. */
static __noinline void works_for(struct task_struct *waker, u64 now)
{
	u64 function, work = work_of(waker, &function);
	if (!work)
		return;
	struct object o = { .kind = K_WORK, .id = address_id(function) };
	send_work_name(&o, function);
	struct queued *q = bpf_map_lookup_elem(&works, &work);
	struct rec_work *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(LOST_EVENTS);
		return;
	}
	e->type = REC_WORK;
	e->pad = 0;
	e->cpu = bpf_get_smp_processor_id();
	e->tid = waker->pid;
	e->tgid = waker->tgid;
	e->time = now;
	e->requester = q ? q->tid : 0;
	e->requester_tgid = q ? q->tgid : 0;
	e->queued = q ? q->time : 0;
	e->pad2 = 0;
	e->id = o.id;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

#endif
