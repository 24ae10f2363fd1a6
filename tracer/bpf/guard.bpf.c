// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Performance guards (PerfGuard, section 4.6 and algorithm 2): units of work of threads, their types and how long they
 * take, looked at while they run. An object of its own.
 *
 * A unit of a thread ends when it begins one of its boundary waits, which user space has named by the place (ip, sp) of
 * the system call, and the next begins when it gets the CPU back from that (`on_switch`), or when the loop's own wait
 * call returned at once (`on_turn`, a probe behind that call), or with the next request of a connection that it has
 * answered (`on_request`).
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "guard.h"
#include "user_stack.h"
char LICENSE[] SEC("license") = "Dual MIT/GPL";
#include "delay.h"
#include "sight.h"
#include "learn.h"
#include "shape.h"

static __always_inline void lose(void)
{
	u32 zero = 0;
	u64 *n = bpf_map_lookup_elem(&lost, &zero);
	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline struct control *settings(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline struct unit *guarded(u32 tid)
{
	u32 *slot = bpf_map_lookup_elem(&slots, &tid);
	if (!slot)
		return 0;
	struct unit *u = bpf_map_lookup_elem(&units, slot);
	return u && u->tid == tid ? u : 0;
}

static __always_inline void has_cpu(u32 slot_and_one)
{
	u32 zero = 0;
	u32 *of = bpf_map_lookup_elem(&here, &zero);
	if (of)
		*of = slot_and_one;
}

static __always_inline void head(struct head *h, u32 type, u32 tid, u32 tgid, u32 loop, u64 now)
{
	h->type = type;
	h->tid = tid;
	h->tgid = tgid;
	h->loop = loop;
	h->time = now;
}

/* Ask user space about a stack of the current thread, unless it was asked lately or often. */
static __always_inline void ask(u32 tid, u32 tgid, u64 image, struct regs *regs, u32 turn, u64 now)
{
	u64 key = stack_key(tid, regs->ip, regs->sp);
	u64 *last = bpf_map_lookup_elem(&asked, &key);
	/* Numbers of threads come again; a turn is asked about until the thread is guarded. */
	if (last && now - *last < (turn ? ASK_NS : ASK_AGAIN_NS))
		return;
	struct asks *a = bpf_map_lookup_elem(&asking, &tid);
	if (a && now - a->since < ASK_NS) {
		if (a->count >= ASKS)
			return;
		a->count++;
	} else {
		struct asks first = { now, 1 };
		bpf_map_update_elem(&asking, &tid, &first, BPF_ANY);
	}
	struct rec_stack *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
	if (!r) {
		lose();
		return;
	}
	head(&r->head, REC_STACK, tid, tgid, 0, now);
	r->turn = turn;
	r->image = image;
	r->regs = *regs;
	r->len = copy_stack(r->data, regs->sp, STACK_BYTES);
	bpf_ringbuf_submit(r, 0);
	bpf_map_update_elem(&asked, &key, &now, BPF_ANY);
}

/* A thread that comes under guard: it has a place from now on, and user space is told of that. */
static __always_inline struct unit *enlist(u32 tid, u32 tgid, u32 loop, u64 now)
{
	u32 slot;
	struct rec_life *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
	if (!r) {
		lose();
		return 0;
	}
	if (bpf_map_pop_elem(&spare, &slot)) {
		bpf_ringbuf_discard(r, 0);
		lose();
		return 0;
	}
	struct unit *u = bpf_map_lookup_elem(&units, &slot);
	if (!u) {
		bpf_ringbuf_discard(r, 0);
		return 0;
	}
	u->running = 0;
	u->off = 0;
	u->got = 0;
	u->number = 0;
	u->turned = u->woken = 0;
	u->loop = loop;
	u->slot = slot;
	__builtin_memset(u->waits, 0, sizeof(u->waits));
	u->tgid = tgid;
	u->tid = tid;
	/* User space may have given it another meanwhile. */
	if (bpf_map_update_elem(&slots, &tid, &slot, BPF_NOEXIST)) {
		bpf_map_push_elem(&spare, &slot, BPF_ANY);
		bpf_ringbuf_discard(r, 0);
		return 0;
	}
	head(&r->head, REC_ENLISTED, tid, tgid, loop, now);
	r->start = r->elapsed = 0;
	r->other = slot;
	r->of = 0;
	bpf_ringbuf_submit(r, 0);
	return u;
}

static __always_inline struct guarded_type *type_of(struct guarded_loop *l, u32 of)
{
	if (of >= TYPES)
		of = TYPES;
	return &l->types[of];
}

static __always_inline u64 elapsed_of(struct unit *u, u64 now)
{
	u64 since = u->start + u->spent;
	return now > since ? now - since : 0;
}

#include "frame.h"
#include "withdraw.h"

/* Told with its stack. */
static __always_inline bool is_told(struct unit *u)
{
	return u->told == TOLD && u->slow == SLOW;
}

/* And not gone on for longer since. */
static __always_inline bool is_known(struct unit *u, u64 now)
{
	return is_told(u) && elapsed_of(u, now) < u->next;
}

/* Functions of Python that the current thread is in. */
static __noinline u32 whole_python(struct unit *u, struct py_frame *frames)
{
	u64 frame = 0;
	struct python *p = python_of(u->tid, u->tgid, &frame);
	if (!p)
		return 0;
	u32 count = python_frames(p, &frame, frames);
	return frame && count < PY_FRAMES ? 0 : count;
}

/* All but what it may take, and where it is. */
static __always_inline void describe(struct rec_violation *v, struct unit *u, u32 type, u32 seen, u64 now)
{
	head(&v->head, type, u->tid, u->tgid, u->loop, now);
	v->start = u->start;
	v->elapsed = elapsed_of(u, now);
	v->threshold = 0;
	v->away = u->away;
	v->ready = u->ready;
	v->stolen = u->stolen;
	v->halted = u->halted;
	v->of = u->best;
	v->seen = seen;
	v->number = u->number;
	v->place = u->asleep;
	v->python = 0;
	v->kernel_frames = 0;
	v->len = 0;
}

/* `in_kernel`: the registers are those with which it came there. */
static __always_inline void take_stack(struct rec_violation *v, struct unit *u, struct regs *regs, bool in_kernel)
{
	if (!regs) {
		__builtin_memset(&v->regs, 0, sizeof(v->regs));
		return;
	}
	bpf_probe_read_kernel(&v->regs, sizeof(v->regs), regs);
	if (in_kernel)
		put_back(&v->regs);
	v->len = copy_stack(v->data, v->regs.sp, STACK_BYTES);
	v->python = whole_python(u, v->frames);
}

static __always_inline void look_later(struct unit *u, u64 elapsed)
{
	u->next = elapsed + elapsed / NEXT_PART;
}

/* Where is a unit that goes on? */
static __noinline int look_again(struct unit *u, struct regs *regs, bool in_kernel, u32 seen, u64 now)
{
	/* Also where there is no room: the next attempt is no sooner. */
	look_later(u, elapsed_of(u, now));
	struct rec_violation *v = bpf_ringbuf_reserve(&told, sizeof(*v), 0);
	if (!v) {
		lose();
		return 0;
	}
	describe(v, u, REC_LOOK, seen, now);
	take_stack(v, u, regs, in_kernel);
	bpf_ringbuf_submit(v, 0);
	u->spent += bpf_ktime_get_ns() - now;
	return 0;
}

/*
 * Does the unit take too long? `regs` give the stack at this moment, without them the place where it slept last stands
 * for it; `task`, or the context of a sample that met it in the kernel, the kernel's.
 */
static __always_inline void check(struct unit *u, u64 now, u32 seen, struct regs *regs, struct task_struct *task,
				  void *sample)
{
	if (is_known(u, now) || (seen == BY_END && is_told(u)))
		return;
	if (is_told(u) && elapsed_of(u, now) < u->again) {
		if (!is_gone(u, regs ? regs->sp : 0))
			look_again(u, regs, task || sample, seen, now);
		return;
	}
	struct guarded_loop *l = bpf_map_lookup_elem(&loops, &u->loop);
	if (!l)
		return;
	struct guarded_type *t = type_of(l, u->best);
	u64 elapsed = elapsed_of(u, now), threshold = t->threshold;
	if (elapsed <= threshold && u->hazy && seen != BY_END)
		suspect(u, now, threshold);
	if (!threshold || elapsed <= threshold || (seen != BY_END && is_gone(u, regs ? regs->sp : 0)))
		return;
	if (seen == BY_SAMPLE && waits_for_tick(u, bpf_get_current_task_btf(), now))
		return;
	look_at_delay(u, bpf_get_current_task_btf());
	u32 slow = elapsed <= threshold + u->ready + u->stolen ? STARVED : SLOW;
	if (u->told == TOLD && slow <= u->slow && (slow != SLOW || elapsed < u->again))
		return;
	if (!u->told) {
		u->told = COUNTED;
		u->counted_as = u->best;
		__sync_fetch_and_add(&t->violations, 1);
	}
	if (slow > u->slow)
		u->slow = slow;
	struct control *c = settings();
	struct alarm *a = slow == STARVED ? &t->alarm[0] : &t->alarm[1];
	if (!c || (seen != BY_END && is_doubtful(l, t, now, elapsed)))
		return;
	/* One that rings on and on is told less and less often, but for what is far worse than all before. */
	if (now < a->quiet_until) {
		if (elapsed / FAR_BEYOND <= a->worst) {
			if (is_told(u))
				look_again(u, regs, task || sample, seen, now);
			return;
		}
	} else {
		u64 period = a->period * 2;
		if (!period || now - a->quiet_until > period * 2) {
			period = c->period_ns;
			a->worst = 0;
		}
		a->period = period < c->longest_ns ? period : c->longest_ns;
		a->quiet_until = now + a->period;
	}
	if (elapsed > a->worst)
		a->worst = elapsed;
	struct rec_violation *v = bpf_ringbuf_reserve(&told, sizeof(*v), 0);
	if (!v) {
		lose();
		return;
	}
	describe(v, u, REC_VIOLATION, seen, now);
	v->threshold = threshold;
	long n = 0;
	if (task)
		n = bpf_get_task_stack(task, v->kernel, sizeof(v->kernel), 0);
	else if (sample)
		n = bpf_get_stack(sample, v->kernel, sizeof(v->kernel), 0);
	if (n > 0)
		v->kernel_frames = n / 8;
	take_stack(v, u, regs, task || sample);
	bpf_ringbuf_submit(v, 0);
	u->told = TOLD;
	u->again = elapsed * AGAIN;
	look_later(u, elapsed);
	/* This took long, and was ours. */
	u->spent += bpf_ktime_get_ns() - now;
}

/* How long it was one unit when that was known last: it slept until then, where it slept last. */
static __noinline int check_held(struct unit *u)
{
	check(u, u->held, BY_SWITCH, 0, 0, 0);
	return 0;
}

/* The current thread, which had the CPU since `held`, may have come by a boundary unseen: see sight.h. */
static __always_inline void age(struct unit *u, u64 now)
{
	u64 on = lit_since();
	if (!on || on > u->held) {
		u64 since = u->start + u->spent;
		look_at_delay(u, bpf_get_current_task_btf());
		if (u->held > since) {
			if (u->hazy && u->asleep.ip)
				check_held(u);
			if (u->held - since > u->least)
				u->least = u->held - since;
		}
		u->waited += u->ready + u->stolen;
		u->start = on && on < now ? on : now;
		u->spent = u->away = u->ready = u->stolen = u->halted = 0;
		u->delay = NOT_LOOKED;
		look_at_delay(u, bpf_get_current_task_btf());
		u->best = NO_TYPE;
		u->most = 0;
		u->hazy = 1;
	}
	u->held = now;
}

/* One unit or several that nobody saw begin and end, and none of which can have taken too long: what is most frequent
 * where probes are out is to be quick. */
static __always_inline bool is_cleared(struct unit *u, u64 now, u64 on)
{
	if (u->told || (on && on <= u->first && !u->hazy))
		return false;
	struct guarded_loop *l = bpf_map_lookup_elem(&loops, &u->loop);
	if (!l || now - u->first > l->types[TYPES].threshold)
		return false;
	count_unseen(true);
	return true;
}

static __always_inline void begin_unit(struct unit *u, u64 now, u32 woken)
{
	u->start = u->first = u->held = now;
	u->waited = u->least = 0;
	u->hazy = 0;
	u->spent = 0;
	u->off = 0;
	u->away = u->ready = u->stolen = u->halted = 0;
	u->stolen_so_far = stolen_from(bpf_get_current_task_btf());
	u->put_off = 0;
	u->delay = NOT_LOOKED;
	u->best = NO_TYPE;
	u->most = 0;
	u->told = UNTOLD;
	u->slow = IN_TIME;
	u->counted_as = NO_TYPE;
	u->withdrawn = 0;
	u->woken = woken;
	u->contexts = u->more = 0;
	u->asleep.ip = u->asleep.sp = 0;
	u->served = 0;
	u->answered = u->came = 0;
	u->number++;
	/* Also of a thread that came under guard while it had the CPU. */
	has_cpu(u->slot + 1);
	/* Without probes there are none. */
	if (lit_since())
		__builtin_memset(u->hits, 0, sizeof(u->hits));
	u->running = 1;
}

/* `regs` give the stack where it ended, when that is known. */
static __always_inline void end_unit(struct unit *u, u64 now, struct regs *regs)
{
	if (!u->running)
		return;
	check(u, now, BY_END, regs, 0, 0);
	u->running = 0;
	u64 elapsed = elapsed_of(u, now);
	struct guarded_loop *l = bpf_map_lookup_elem(&loops, &u->loop);
	if (u->hazy && elapsed < u->least)
		elapsed = u->least;
	if (l && u->hazy && !u->told) {
		count_unseen(now - u->first <= type_of(l, NO_TYPE)->threshold);
		return;
	}
	if (l) {
		struct guarded_type *t = type_of(l, u->best);
		__sync_fetch_and_add(&t->units, 1);
		__sync_fetch_and_add(&t->sum, elapsed);
		if (elapsed > u->away && !u->hazy)
			__sync_fetch_and_add(&l->busy, elapsed - u->away);
		if (u->slow == STARVED)
			__sync_fetch_and_add(&type_of(l, u->counted_as)->starved, 1);
		if (u->withdrawn && !u->told)
			count_withdrawn(l, u);
	}
	struct control *c = settings();
	if (c && c->learning) {
		look_at_delay(u, bpf_get_current_task_btf());
		if (tell_unit(u, now))
			lose();
		return;
	}
	bool known = u->told == TOLD || u->withdrawn & EVIDENT;
	if (known || (!u->told && c && l && c->sparse_ns && now - l->passed > c->sparse_ns)) {
		if (!known)
			l->passed = now;
		struct rec_life *r = bpf_ringbuf_reserve(&told, sizeof(*r), 0);
		if (!r) {
			lose();
			return;
		}
		head(&r->head, known ? REC_ENDED : REC_PASSED, u->tid, u->tgid, u->loop, now);
		r->start = u->start;
		r->elapsed = elapsed;
		r->other = u->number;
		r->of = u->best;
		bpf_ringbuf_submit(r, 0);
	}
}

/* Which of them, as a bit; 0 if none. */
static __always_inline u32 is_boundary(struct unit *u, u64 ip, u64 sp)
{
#pragma unroll
	for (int i = 0; i < WAITS; i++)
		if (u->waits[i].call.ip == ip && u->waits[i].call.sp == sp)
			return 1 << i;
	return 0;
}

/* The same call returns within units, too, where several parts of a program share it. */
static __always_inline u32 is_turn(struct unit *u, u64 sp)
{
	u32 found = 0;
#pragma unroll
	for (int i = 0; i < WAITS; i++)
		if (u->waits[i].turn == sp)
			found |= 1 << i;
	return found;
}

/* The waits within the same call of the loop as this one, and itself. */
static __always_inline u32 same_call(struct unit *u, u32 boundary)
{
	u64 turn = 0;
#pragma unroll
	for (int i = 0; i < WAITS; i++)
		if (boundary & 1 << i)
			turn = u->waits[i].turn;
	return is_turn(u, turn);
}

/* States of a thread that a signal, or a tracer, has stopped (include/linux/sched.h: __TASK_STOPPED, __TASK_TRACED). */
#define STOPPED (0x4 | 0x8)

struct scratch {
	struct regs regs;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct regs *user_regs(struct task_struct *task, u32 which)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &which);
	if (!s || bpf_probe_read_kernel(&s->regs, sizeof(s->regs), (void *)bpf_task_pt_regs(task)))
		return 0;
	return &s->regs;
}

static __always_inline void leave(struct task_struct *task, bool preempt, u64 now)
{
	u32 tid = task->pid, tgid = task->tgid;
	struct unit *u = guarded(tid);
	struct control *c = settings();
	bool given = c && c->given;
	if (given ? !u || !u->running : !u && !bpf_map_lookup_elem(&targets, &tgid))
		return;
	u32 state = task->__state;
	bool blocked = !preempt && state;
	struct pt_regs *at = (void *)bpf_task_pt_regs(task);
	u64 on = lit_since(), image = 0;
	if (u) {
		had_cpu(u, now, on);
		u->got = 0;
		u->halts = blocked && state & STOPPED;
	}
	u32 boundary = u && blocked && !given && (s64)at->orig_ax >= 0 ? is_boundary(u, at->ip, at->sp) : 0;
	if (u && boundary && u->running && is_cleared(u, now, on)) {
		u->running = 0;
		u->woken = boundary;
		u->off = now;
		return;
	}
	if (u && u->running) {
		age(u, now);
		look_at_delay(u, task);
	}
	struct regs *r = 0;
	if (!boundary) {
		r = user_regs(task, 0);
		if (!r || !(r->cs & 3) || (given && u && is_gone(u, r->sp)))
			return;
		/* Put off the CPU. */
		if (!blocked) {
			if (u && u->running) {
				u->off = now;
				u->asleep.ip = u->asleep.sp = 0;
				check(u, now, BY_SWITCH, r, task, 0);
			}
			return;
		}
		image = given ? 0 : image_of(task);
		/* In no system call a page is not there, or it was stopped: no boundary. */
		struct shape *known = given || (s64)r->orig_ax < 0 ? 0 : shape_of(image, r->ip, r->sp);
		if (known && known->loop & LEFT) {
			if (!u || u->loop != (known->loop & ~LEFT))
				known = 0;
			else {
				/* What it does until it is back is no unit. */
				end_unit(u, now, 0);
				u->off = 0;
				u->woken = 0;
				return;
			}
		}
		if (known && !u)
			u = enlist(tid, tgid, known->loop, now);
		if (known && u)
			boundary = add_wait(u, known, (struct place){ r->ip, r->sp }, r->sp);
	}
	if (u && boundary) {
		/* Woken for nothing, as by a connection that another process took, or to wait for the mutex of a
		   condition: the loop's wait call did not return. */
		if (u->woken & u->turned && !u->hazy && u->woken & u->turned & same_call(u, boundary))
			u->running = 0;
		end_unit(u, now, 0);
		u->woken = boundary;
		u->off = now;
		return;
	}
	if (!r)
		return;
	ask(tid, tgid, image, r, 0, now);
	if (u && u->running) {
		u->off = now;
		u->asleep.ip = r->ip;
		u->asleep.sp = r->sp;
		check(u, now, BY_SWITCH, r, task, 0);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns();
	if (!(prev->flags & NO_USER))
		leave(prev, preempt, now);
	struct unit *u = next->flags & NO_USER ? 0 : guarded(next->pid);
	has_cpu(u ? u->slot + 1 : 0);
	if (u) {
		if (!u->running && u->off)
			begin_unit(u, now, u->woken ? u->woken : ANY_WAIT);
		else if (u->running && u->off) {
			u->away += now - u->off;
			if (u->halts)
				u->halted += now - u->off;
			/* Where it slept. */
			if (u->asleep.ip && is_told(u) && !is_known(u, now))
				look_again(u, 0, false, BY_SLEEP, now);
		}
		u->off = 0;
		u->held = u->got = now;
		gets_cpu(u, prev, now);
	}
	return 0;
}

/* What the kernel gives a program on a perf event (uapi: struct bpf_perf_event_data, on x86-64). */
struct sampled {
	struct regs regs;
	u64 period, address;
};

SEC("perf_event")
int on_sample(struct sampled *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct unit *u = guarded(task->pid);
	if (!u || !u->running)
		return 0;
	u64 now = bpf_ktime_get_ns();
	had_cpu(u, now, lit_since());
	age(u, now);
	struct regs *r = is_known(u, now) ? 0 : user_regs(task, 1);
	if (!r)
		return 0;
	/* Of one that was met in user mode the kernel's stack is the sampling. */
	bool kernel = !(ctx->regs.cs & 3);
	check(u, now, BY_SAMPLE, r, 0, kernel ? ctx : 0);
	return 0;
}

/* Behind the loop's own wait call: `onLoopEntry` and `onUnitStart` of algorithm 2. */
SEC("uprobe")
int on_turn(struct regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	u32 tid = id, tgid = id >> 32;
	u64 cookie = bpf_get_attach_cookie(ctx);
	struct control *c = settings();
	u64 took = c ? (cookie & STEPPED ? c->step_ns : c->hit_ns) : 0;
	probe_took(took);
	struct unit *u = guarded(tid);
	if (!u && !bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	/* As they were where the call returned to. */
	u64 ip = ctx->ip - ((cookie & (STEPPED - 1)) >> SKIP & 0xffff), sp = ctx->sp + (cookie >> 32);
	/* Code on the way there may be jumped to as well. What the call returned by lies below the stack still, unless it was not
	   the last one. */
	u64 returned = 0;
	if (bpf_probe_read_user(&returned, sizeof(returned), (void *)(sp - 8)) || returned != ip)
		return 0;
	u32 turn = u ? is_turn(u, sp) : 0;
	if (!turn) {
		u64 image = image_of(bpf_get_current_task_btf());
		struct shape *known = shape_of(image, ip, sp);
		if (known && known->loop & LEFT)
			known = 0;
		if (known && !u)
			u = enlist(tid, tgid, known->loop, now);
		if (known && u)
			turn = add_wait(u, known, (struct place){ 0, 0 }, sp);
		u32 which = 1;
		struct scratch *s = u ? 0 : bpf_map_lookup_elem(&scratches, &which);
		if (s) {
			bpf_probe_read_kernel(&s->regs, sizeof(s->regs), ctx);
			s->regs.ip = ip;
			s->regs.sp = sp;
			ask(tid, tgid, image, &s->regs, 1, now);
		}
	}
	if (!u || !turn)
		return 0;
	u->turned |= turn;
	if (u->running)
		age(u, now);
	if (u->running && !u->hazy && (u->woken || (u->came && !u->answered))) {
		/* It began when the thread got the CPU back for this return, or with what this call has received. */
		u->woken = u->came = 0;
	} else {
		end_unit(u, now, 0);
		begin_unit(u, now, 0);
	}
	/* Half of it was before `now`. */
	u->spent += took / 2;
	return 0;
}

/* At the entry of a guarded function: `onUnitContext`. */
SEC("uprobe")
int on_context(struct regs *ctx)
{
	u32 tid = bpf_get_current_pid_tgid();
	u64 cookie = bpf_get_attach_cookie(ctx);
	u32 function = cookie & (STEPPED - 1);
	/* Also by threads that are not guarded: it is the same cost to them. */
	u64 *calls_of = bpf_map_lookup_elem(&calls, &function);
	if (calls_of)
		__sync_fetch_and_add(calls_of, 1);
	struct control *s = settings();
	if (!s)
		return 0;
	u64 ours = cookie & STEPPED ? s->step_ns : s->hit_ns;
	probe_took(ours);
	struct unit *u = guarded(tid);
	if (!u || !u->running)
		return 0;
	u32 depth = u->frame - ctx->sp - (cookie >> 32);
	if (s->learning) {
		note_context(u, function, depth);
		if (s->stacks && tell_call(u, function, depth, ctx))
			lose();
		u->spent += ours;
		return 0;
	}
	/* Of one that began when no probes were set some are missing. */
	u64 on = lit_since();
	if (!on || on > u->first || u->hazy)
		return 0;
	struct context_key key = { u->loop, function, depth, 0 };
	struct candidates *c = bpf_map_lookup_elem(&contexts, &key);
	if (c) {
		u32 best = u->best, most = u->most;
		for (u32 i = 0; i < CANDIDATES; i++) {
			if (i >= c->count)
				break;
			u32 of = c->type[i];
			if (of >= TYPES)
				break;
			u32 hits = ++u->hits[of];
			/* Of those with the most hits the one with the smallest threshold, which is mostly the first. */
			if (hits > most || (hits == most && of < best)) {
				most = hits;
				best = of;
			}
		}
		u->best = best;
		u->most = most;
	}
	if (u->told && u->best != u->counted_as)
		withdraw(u, bpf_ktime_get_ns());
	if (u->told != TOLD || u->slow != SLOW) {
		u64 now = bpf_ktime_get_ns();
		struct guarded_loop *l = bpf_map_lookup_elem(&loops, &u->loop);
		if (l && u->best != NO_TYPE && elapsed_of(u, now) > type_of(l, u->best)->threshold) {
			u32 which = 1;
			struct scratch *room = bpf_map_lookup_elem(&scratches, &which);
			if (room) {
				bpf_probe_read_kernel(&room->regs, sizeof(room->regs), ctx);
				check(u, now, BY_CONTEXT, &room->regs, 0, 0);
			}
		}
	}
	u->spent += ours;
	return 0;
}

#include "served.h"

#include "given.h"

/* The current thread ends, within a unit or between two. */
static __noinline int ends_with_thread(struct unit *u)
{
	u64 now = bpf_ktime_get_ns(), on = lit_since();
	if (!u || !u->running)
		return 0;
	had_cpu(u, now, on);
	if (is_cleared(u, now, on)) {
		u->running = 0;
		return 0;
	}
	age(u, now);
	end_unit(u, now, 0);
	return 0;
}

#include "lives.h"
