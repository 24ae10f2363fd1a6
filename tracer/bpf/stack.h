/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Copies of user stacks, kernel stacks. */
#ifndef PG_STACK_H
#define PG_STACK_H

static __always_inline void copy_registers(u64 *to, struct pt_regs *r)
{
	to[0] = r->ax;
	to[1] = r->bx;
	to[2] = r->cx;
	to[3] = r->dx;
	to[4] = r->si;
	to[5] = r->di;
	to[6] = r->bp;
	to[7] = r->sp;
	to[8] = r->r8;
	to[9] = r->r9;
	to[10] = r->r10;
	to[11] = r->r11;
	to[12] = r->r12;
	to[13] = r->r13;
	to[14] = r->r14;
	to[15] = r->r15;
	to[16] = r->ip;
}

/* Copy up to `size` bytes from `sp` upwards: the whole, or up to the first page that is not there. */
static __always_inline u32 copy_stack(u8 *to, u64 sp, u32 size)
{
	if (!bpf_probe_read_user(to, size, (void *)sp))
		return size;
	u32 done = 0;
	for (u32 at = 0; at < size; at += 512) {
		if (bpf_probe_read_user(to + at, 512, (void *)(sp + at)))
			break;
		done = at + 512;
	}
	/* The stack often ends within the last piece. */
	if (done < size) {
		u32 rest = (4096 - ((sp + done) & 4095)) & 511;
		if (rest && !bpf_probe_read_user(to + (done & 0x3fff), rest & 511, (void *)(sp + done)))
			done += rest;
	}
	return done;
}

#define FILL(rec, ring_type, thread_, size)                                     \
	do {                                                                    \
		(rec)->head.type = ring_type;                                   \
		(rec)->head.flags = 0;                                          \
		(rec)->head.cpu = bpf_get_smp_processor_id();                   \
		(rec)->head.tid = (thread_)->pid;                               \
		(rec)->head.tgid = (thread_)->tgid;                             \
		(rec)->head.time = now;                                         \
		(rec)->head.key = key;                                          \
		(rec)->head.kernel_stack = kernel_stack;                        \
		copy_registers((rec)->head.regs, r);                            \
		(rec)->head.len = copy_stack((rec)->data, r->sp, size);         \
	} while (0)

/* The user stack of the current thread: sends a copy unless one from the same place was sent within
 * the last second. Returns the key by which records name it. */
static __noinline u64 user_stack(struct thread *t, struct task_struct *task, u64 now)
{
	u64 kernel_stack = 0;
	if (!user_stacks)
		return 0;
	struct pt_regs *r = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 key = mix(mix((u32)task->pid, r->ip), r->sp) | 1;
	u32 slot = (key >> 8) & (MEMO - 1);
	if (t->stack_key[slot] == key && now - t->stack_time[slot] < memo_ns)
		return key;
	if (t->in_focus) {
		struct rec_stack_large *u = bpf_ringbuf_reserve(&stacks, sizeof(*u), 0);
		if (!u)
			goto lost;
		FILL(u, REC_USTACK, task, STACK_LARGE);
		bpf_ringbuf_submit(u, BPF_RB_NO_WAKEUP);
	} else {
		struct rec_stack_small *u = bpf_ringbuf_reserve(&stacks, sizeof(*u), 0);
		if (!u)
			goto lost;
		FILL(u, REC_USTACK, task, STACK_SMALL);
		bpf_ringbuf_submit(u, BPF_RB_NO_WAKEUP);
	}
	t->stack_key[slot] = key;
	t->stack_time[slot] = now;
	return key;
lost:
	count(LOST_STACKS);
	return 0;
}

/* Send the kernel stack in `s` if it is new; its hash. */
static __noinline u64 send_kernel_stack(struct scratch *s, long bytes)
{
	if (bytes <= 0)
		return 0;
	u32 n = bytes / 8;
	if (n > KFRAMES)
		n = KFRAMES;
	u64 h = 0x9e3779b97f4a7c15ULL;
	for (u32 i = 0; i < KFRAMES; i++) {
		if (i >= n)
			break;
		h = mix(h, s->kstack.ip[i]);
	}
	h |= 1;
	if (unsent(h)) {
		s->kstack.type = REC_KSTACK;
		s->kstack.count = n;
		s->kstack.hash = h;
		if (send(&s->kstack, sizeof(s->kstack)))
			mark_sent(h);
	}
	return h;
}

static __always_inline u64 kernel_stack_of(struct task_struct *task, u32 which)
{
	struct scratch *s = scratch(which);
	if (!s)
		return 0;
	return send_kernel_stack(s, bpf_get_task_stack(task, s->kstack.ip, sizeof(s->kstack.ip), 0));
}

#endif
