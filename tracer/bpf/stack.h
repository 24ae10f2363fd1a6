/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Copies of user stacks, kernel stacks. */
#ifndef PG_STACK_H
#define PG_STACK_H

#include "user_stack.h"

/* The registers a thread had in user mode, into its scratch room. */
static __always_inline struct regs *load_regs(struct task_struct *task, u32 which)
{
	struct scratch *s = scratch(which);
	if (!s || bpf_probe_read_kernel(&s->regs, sizeof(s->regs), (void *)bpf_task_pt_regs(task)))
		return 0;
	return &s->regs;
}

#define FILL(rec, ring_type, size)                                              \
	do {                                                                    \
		(rec)->head.type = ring_type;                                   \
		(rec)->head.flags = 0;                                          \
		(rec)->head.cpu = bpf_get_smp_processor_id();                   \
		(rec)->head.tid = tid;                                          \
		(rec)->head.tgid = tgid;                                        \
		(rec)->head.time = now;                                         \
		(rec)->head.key = key;                                          \
		(rec)->head.kernel_stack = kernel_stack;                        \
		(rec)->head.regs = *r;                                          \
		(rec)->head.len = copy_stack((rec)->data, r->sp, size);         \
	} while (0)

/* As much of a library's code lies around a call of its own. */
#define NEAR 0x180000

/*
 * Which calls a user stack is made of, as far as its first words tell: those that point into the program's code, or near `ip`.
 * Two functions may call the same one of a library with a stack of the same depth.
 */
u64 __noinline calls_at(u64 ip, u64 sp)
{
	struct cpu *c = this_cpu();
	struct task_struct *task = bpf_get_current_task_btf();
	if (!c || bpf_probe_read_user(c->top, sizeof(c->top), (void *)sp))
		return 0;
	u64 code = task->mm->start_code, size = task->mm->end_code - code;
	u64 calls = 0;
	for (int i = 0; i < STACK_WORDS; i++) {
		u64 word = c->top[i];
		if (word - code < size || word - ip + NEAR < 2 * NEAR)
			calls = mix(calls, word);
	}
	return calls;
}

/* What names the user stack of the current thread. Loops wait for events in one place. */
static __always_inline u64 place(u32 tid, u64 ip, u64 sp, u64 nr)
{
	bool of_loop = nr == 232 || nr == 281; /* epoll_wait, epoll_pwait */
	return stack_key(tid, of_loop ? ip : mix(ip, calls_at(ip, sp)), sp);
}

/* The key of the user stack when it was copied lately, else 0. */
static __always_inline u64 known_stack(struct thread *t, struct pt_regs *r, u32 tid, u64 now)
{
	u64 key = place(tid, r->ip, r->sp, r->orig_ax);
	u32 slot = key >> 8;
	BOUND(slot, MEMO);
	struct copied *c = &t->stacks[slot];
	return c->key == key && now - c->time < memo_ns ? key : 0;
}

/* The user stack of the current thread: sends a copy unless one from the same place was sent within
 * the last second. Returns the key by which records name it. */
u64 __noinline user_stack(struct thread *t, struct regs *r, u32 tid, u32 tgid, u64 now)
{
	if (!t || !r)
		return 0;
	u64 kernel_stack = 0;
	if (!user_stacks)
		return 0;
	u64 key = place(tid, r->ip, r->sp, r->orig_ax);
	u32 slot = (key >> 8) & (MEMO - 1);
	struct copied *c = &t->stacks[slot];
	if (c->key == key && now - c->time < memo_ns)
		return key;
	if (t->in_focus) {
		struct rec_stack_large *u = bpf_ringbuf_reserve(&stacks, sizeof(*u), 0);
		if (!u)
			goto lost;
		FILL(u, REC_USTACK, STACK_LARGE);
		bpf_ringbuf_submit(u, BPF_RB_NO_WAKEUP);
	} else {
		struct rec_stack_small *u = bpf_ringbuf_reserve(&stacks, sizeof(*u), 0);
		if (!u)
			goto lost;
		FILL(u, REC_USTACK, STACK_SMALL);
		bpf_ringbuf_submit(u, BPF_RB_NO_WAKEUP);
	}
	c->key = key;
	c->time = now;
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
