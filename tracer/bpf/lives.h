/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Guarded processes and threads come and go. Included by guard.bpf.c. */
#ifndef PG_LIVES_H
#define PG_LIVES_H

static __always_inline void life(u32 type, u32 tid, u32 tgid, u32 other)
{
	struct rec_life *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
	if (!r) {
		lose();
		return;
	}
	head(&r->head, type, tid, tgid, 0, bpf_ktime_get_ns());
	r->start = r->elapsed = 0;
	r->other = other;
	r->of = 0;
	bpf_ringbuf_submit(r, 0);
}

/* Those of given units go back to where they were taken from; others user space gives. */
static __always_inline void free_slot(u32 tid)
{
	struct control *c = settings();
	u32 *at = bpf_map_lookup_elem(&slots, &tid);
	if (!at)
		return;
	u32 slot = *at;
	bpf_map_delete_elem(&slots, &tid);
	if (c && c->given)
		bpf_map_push_elem(&spare, &slot, BPF_ANY);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid, one = 1;
	if (from == to || !bpf_map_lookup_elem(&targets, &from))
		return 0;
	bpf_map_update_elem(&targets, &to, &one, BPF_ANY);
	life(REC_FORK, child->pid, to, from);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	u32 tid = task->pid, tgid = task->tgid;
	if (!bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	free_slot(tid);
	life(REC_EXEC, tid, tgid, 0);
	return 0;
}

/* How many threads of a process are left is a count of its signals' state. */
struct signal_struct___left {
	struct {
		int counter;
	} live;
} __attribute__((preserve_access_index));
struct task_struct___left {
	struct signal_struct___left *signal;
} __attribute__((preserve_access_index));

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	u32 tid = task->pid, tgid = task->tgid;
	if (!bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	struct unit *u = guarded(tid);
	struct control *c = settings();
	/* Its unit ends with it; a function that never returned is none. */
	if (u && c && !c->given)
		ends_with_thread(u);
	free_slot(tid);
	/* The last one: the number may pass on to another process. */
	if (!BPF_CORE_READ((struct task_struct___left *)task, signal, live.counter))
		bpf_map_delete_elem(&targets, &tgid);
	life(REC_EXIT, tid, tgid, 0);
	return 0;
}

#endif
