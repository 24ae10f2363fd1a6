/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Units that a person gave the boundaries of: they begin and end where probes are come by. Included by guard.bpf.c.
 *
 * A unit that is one call of a function begins at its entry and ends behind the call: where the return address, which
 * lies at the stack pointer then, leads to. User space sets a probe there once it is told of the address. Nothing of
 * the target's stack is changed, as a return probe of the kernel would do, so exceptions and unwinders find what they
 * expect. A function that is left by another way (longjmp, an exception) is noticed by its frame: see `is_gone`.
 */
#ifndef PG_GIVEN_H
#define PG_GIVEN_H

/* The cookie of a probe: how much lower the stack pointer is than where the unit begins << 32 | this | the loop. */
#define OF_LOOP 0xffu
#define FRAMED 0x100u	/* at the entry of a function: the stack pointer is that of its return address */
#define RETURNS 0x200u	/* and the unit ends with that call */
#define RESULT 0x400u	/* behind a system call, only if it gave more than 0, */
#define KIND_SHIFT 12	/* 4 bits: only if the descriptor in the first argument is of this kind, as in `i_mode` */
#define NO_ERROR 0x10000u	 /* or 0, too, */
#define ANYTHING 0x20000u	 /* or whatever */
#define WAITS_FOR_RING 0x40000u	 /* only if this use of io_uring_enter waits */
#define WAITS_FOR_WORD 0x80000u	 /* only if this use of futex waits */
#define BY_FUNCTION 0x100000u	 /* made by syscall(2): before it arguments are a function's, behind the number */
/* What tells that they do (linux/io_uring.h, linux/futex.h). */
#define ENTER_GETEVENTS 1u
#define FUTEX_OPERATION 127u
#define FUTEX_WAIT 0
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAIT_REQUEUE_PI 11
/* Mixed into the keys of return addresses in `asked`. */
#define CALLER_KEY 0x5ca11e5ULL

static __always_inline u64 mode_of(u32 fd)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	if (!table || fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	struct file **at = BPF_CORE_READ(table, fd) + fd;
	u64 file = 0;
	bpf_probe_read_kernel(&file, sizeof(file), at);
	struct file *f = (void *)(file & ~3ULL);
	return f ? BPF_CORE_READ(f, f_inode, i_mode) : 0;
}

static __always_inline bool is_wanted(struct regs *of, u64 cookie)
{
	/* Each from its own place: the kernel refuses to read where the compiler made one of two places of. */
	const volatile struct regs *at = of;
	const struct regs all = { .ax = at->ax, .cx = at->cx, .dx = at->dx, .si = at->si, .di = at->di, .r8 = at->r8, .r10 = at->r10 };
	const struct regs *ctx = &all;
	/* Behind the call they are where the kernel takes them, whoever made it. */
	bool shifted = cookie & BY_FUNCTION && !(cookie & RESULT);
	if (cookie & RESULT && !(cookie & ANYTHING) && (s64)ctx->ax < (cookie & NO_ERROR ? 0 : 1))
		return false;
	if (cookie & WAITS_FOR_RING) {
		u32 least = shifted ? ctx->cx : ctx->dx, flags = shifted ? ctx->r8 : ctx->r10;
		if (!least || !(flags & ENTER_GETEVENTS))
			return false;
	}
	if (cookie & WAITS_FOR_WORD) {
		u32 op = (shifted ? ctx->dx : ctx->si) & FUTEX_OPERATION;
		if (op != FUTEX_WAIT && op != FUTEX_WAIT_BITSET && op != FUTEX_WAIT_REQUEUE_PI)
			return false;
	}
	u32 kind = (u32)cookie >> KIND_SHIFT & 15;
	return !kind || (mode_of(shifted ? ctx->si : ctx->di) >> 12 & 15) == kind;
}

/* Where a call returns to, once for each process. */
static __always_inline void tell_caller(struct unit *u, u64 now)
{
	u64 key = mix(mix(u->tgid, u->caller), CALLER_KEY) | 1;
	if (bpf_map_lookup_elem(&asked, &key))
		return;
	struct rec_life *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
	if (!r) {
		lose();
		return;
	}
	head(&r->head, REC_CALLER, u->tid, u->tgid, u->loop, now);
	r->start = u->caller;
	r->elapsed = 0;
	r->other = r->of = 0;
	bpf_ringbuf_submit(r, 0);
	bpf_map_update_elem(&asked, &key, &now, BPF_ANY);
}

static __always_inline u64 half_of(u64 cookie)
{
	struct control *c = settings();
	return c ? (cookie & STEPPED ? c->step_ns : c->hit_ns) / 2 : 0;
}

SEC("uprobe")
int on_begin(struct regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	u32 tid = id, tgid = id >> 32;
	if (!bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	u64 cookie = bpf_get_attach_cookie(ctx);
	if (!is_wanted(ctx, cookie))
		return 0;
	u32 loop = cookie & OF_LOOP;
	u64 sp = ctx->sp + (cookie >> 32), caller = 0;
	if (cookie & FRAMED && bpf_probe_read_user(&caller, sizeof(caller), (void *)sp))
		caller = 0;
	struct unit *u = guarded(tid);
	if (!u)
		u = enlist(tid, tgid, loop, now);
	if (!u)
		return 0;
	if (u->running) {
		/* Within the unit that is under way, or the same call again (recursion): the outermost counts. What
		 * begins with a system call goes on until its end; else another begin says that there was none. */
		bool within = u->caller ? !frame_left(u, sp) : u->loop != loop || cookie & RESULT;
		if (within) {
			u->spent += 2 * half_of(cookie);
			return 0;
		}
		abandon(u);
	}
	u->loop = loop;
	u->frame = sp;
	u->caller = caller;
	u->returns = cookie & RETURNS && caller ? 1 : 0;
	begin_unit(u, now, 0);
	if (u->returns)
		tell_caller(u, now);
	u->spent = half_of(cookie);
	return 0;
}

SEC("uprobe")
int on_end(struct regs *ctx)
{
	u64 now = bpf_ktime_get_ns(), cookie = bpf_get_attach_cookie(ctx);
	struct unit *u = guarded(bpf_get_current_pid_tgid());
	if (!u || !u->running || u->returns || u->loop != (cookie & OF_LOOP) || !is_wanted(ctx, cookie))
		return 0;
	u->spent += half_of(cookie);
	end_unit(u, now, ctx);
	return 0;
}

/* Behind a call of a function whose calls are units. */
SEC("uprobe")
int on_return(struct regs *ctx)
{
	u64 now = bpf_ktime_get_ns(), cookie = bpf_get_attach_cookie(ctx);
	struct unit *u = guarded(bpf_get_current_pid_tgid());
	if (!u || !u->running || !u->returns)
		return 0;
	u64 site = ctx->ip - ((cookie & (STEPPED - 1)) >> SKIP);
	if (ctx->sp + (cookie >> 32) != u->frame + 8 || site != u->caller)
		return 0;
	u->spent += half_of(cookie);
	end_unit(u, now, ctx);
	return 0;
}

#endif
