// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Data flags: what a hardware breakpoint on a variable saw. An object of its own, since only recordings that watch
 * a flag need it, and of its own in full: what the core needs of the kernel's types is no concern of it. It is
 * attached to perf events of type breakpoint; those say which thread and which address.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef signed char __s8;
typedef signed short __s16;
typedef signed int __s32;
typedef signed long long __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

enum bpf_map_type {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
#define BPF_ANY 0

/* What the kernel keeps of a thread's registers in user mode: the layout is fixed (asm/ptrace.h). */
struct regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

struct task_struct {
	int pid, tgid;
} __attribute__((preserve_access_index));

#include <bpf/bpf_helpers.h>
#include "user_stack.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define FLAG_STACK 16384
#define FLAG_CODE 16
#define IN_KERNEL 1
/* A stack copied longer ago than this is copied again. */
#define STALE_NS 1000000000ULL

/* What the kernel gives a program on a perf event (uapi: struct bpf_perf_event_data, on x86-64). */
struct hit_context {
	struct regs regs;
	u64 period, address;
};

struct hit {
	u64 time, address, value, key;
	u32 tid, tgid;
	u16 cpu;
	u8 flags;
	/* How many bytes of the value could be read. */
	u8 width;
	/* How many bytes of the stack follow. */
	u32 len;
	/* The registers in user mode. */
	struct regs regs;
	/* What lies before the instruction pointer: the instruction that touched the flag. */
	u8 code[FLAG_CODE];
};
_Static_assert(sizeof(struct hit) == 232, "tracer/src/flags/hit.rs");

struct hit_and_stack {
	struct hit head;
	u8 data[FLAG_STACK];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} hits SEC(".maps");

/* Stacks copied lately, by thread and place: when. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u64);
} copied SEC(".maps");

/* Hits for which there was no room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

static __always_inline void fill(struct hit *h, struct hit_context *ctx, struct task_struct *task, u64 key,
				 u64 now)
{
	h->time = now;
	h->address = ctx->address;
	h->key = key;
	h->tid = task->pid;
	h->tgid = task->tgid;
	h->cpu = bpf_get_smp_processor_id();
	h->flags = ctx->regs.cs & 3 ? 0 : IN_KERNEL;
	h->len = 0;
	h->value = 0;
	h->width = 0;
	void *at = (void *)ctx->address;
	if (!bpf_probe_read_user(&h->value, 8, at))
		h->width = 8;
	else if (!bpf_probe_read_user(&h->value, 4, at))
		h->width = 4;
	else if (!bpf_probe_read_user(&h->value, 2, at))
		h->width = 2;
	else if (!bpf_probe_read_user(&h->value, 1, at))
		h->width = 1;
	__builtin_memset(h->code, 0, FLAG_CODE);
	if (!h->flags) {
		u64 ip = ctx->regs.ip;
		if (bpf_probe_read_user(h->code, FLAG_CODE, (void *)(ip - FLAG_CODE)))
			bpf_probe_read_user(h->code + FLAG_CODE / 2, FLAG_CODE / 2, (void *)(ip - FLAG_CODE / 2));
	}
}

SEC("perf_event")
int on_flag(struct hit_context *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct regs regs;
	if (bpf_probe_read_kernel(&regs, sizeof(regs), (void *)bpf_task_pt_regs(task)))
		__builtin_memset(&regs, 0, sizeof(regs));
	u64 now = bpf_ktime_get_ns();
	u64 key = stack_key(task->pid, regs.ip, regs.sp);
	u64 *last = bpf_map_lookup_elem(&copied, &key);
	u32 zero = 0;
	if (last && now - *last < STALE_NS) {
		struct hit *h = bpf_ringbuf_reserve(&hits, sizeof(*h), 0);
		if (!h)
			goto none;
		fill(h, ctx, task, key, now);
		h->regs = regs;
		bpf_ringbuf_submit(h, 0);
		return 0;
	}
	struct hit_and_stack *h = bpf_ringbuf_reserve(&hits, sizeof(*h), 0);
	if (!h)
		goto none;
	fill(&h->head, ctx, task, key, now);
	h->head.regs = regs;
	h->head.len = copy_stack(h->data, regs.sp, FLAG_STACK);
	bpf_ringbuf_submit(h, 0);
	bpf_map_update_elem(&copied, &key, &now, BPF_ANY);
	return 0;
none:;
	u64 *n = bpf_map_lookup_elem(&lost, &zero);
	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}
