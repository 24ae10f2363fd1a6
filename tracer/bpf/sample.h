/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* On-CPU samples. */
#ifndef PG_SAMPLE_H
#define PG_SAMPLE_H

/*
 * A profile is of what runs long. A thread that waited less than this ago is seen by the stacks of its waits, too: of
 * its samples one in so many is enough (a power of two), since each takes 10 to 20 us, mostly to unwind the kernel.
 */
#define AWAKE_NS 4000000
#define OF_SHORT 4

SEC("perf_event")
int on_sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 tid = task->pid, tgid = task->tgid;
	if (!tid || tgid == own_tgid)
		return 0;
	u64 now = bpf_ktime_get_ns();
	struct thread *t = known_thread(task);
	struct cpu *c = this_cpu();
	if (t && c && now - t->awake < AWAKE_NS && (c->samples++ & (OF_SHORT - 1)))
		return 0;
	struct regs *r = load_regs(task, ROOM_SAMPLE);
	if (!r)
		return 0;
	u64 kernel_stack = 0, key = 0;
	bool kernel_thread = task->flags & NO_USER;
	struct scratch *s = scratch(ROOM_SAMPLE);
	if (s && kernel_stacks)
		kernel_stack = send_kernel_stack(s, bpf_get_stack(ctx, s->kstack.ip, sizeof(s->kstack.ip), 0));
	if (!kernel_thread)
		send_python(tid, tgid, now);
	/* In a system call the stack is that of its waits: nearly always known. Kernel threads have none. */
	if (kernel_thread || (t && kernel_stack && (key = user_stack(t, r, tid, tgid, now)))) {
		struct stack_head *h = bpf_ringbuf_reserve(&samples, sizeof(*h), 0);
		if (!h)
			goto lost;
		h->type = REC_SAMPLE;
		h->flags = kernel_thread ? F_KERNEL : 0;
		h->cpu = bpf_get_smp_processor_id();
		h->tid = tid;
		h->tgid = tgid;
		h->time = now;
		h->key = key;
		h->kernel_stack = kernel_stack;
		h->regs = *r;
		h->len = 0;
		bpf_ringbuf_submit(h, BPF_RB_NO_WAKEUP);
		return 0;
	}
	if (t && t->in_focus) {
		struct rec_stack_large *u = bpf_ringbuf_reserve(&samples, sizeof(*u), 0);
		if (!u)
			goto lost;
		FILL(u, REC_SAMPLE, STACK_LARGE);
		bpf_ringbuf_submit(u, BPF_RB_NO_WAKEUP);
		return 0;
	}
	struct rec_stack_small *u = bpf_ringbuf_reserve(&samples, sizeof(*u), 0);
	if (!u)
		goto lost;
	FILL(u, REC_SAMPLE, STACK_SMALL);
	bpf_ringbuf_submit(u, BPF_RB_NO_WAKEUP);
	return 0;
lost:
	count(LOST_SAMPLES);
	return 0;
}

#endif
