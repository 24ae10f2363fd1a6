/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * In what interrupt a CPU is. Soft interrupts and expiring timers are far more frequent than what needs to know of
 * them, so the CPU is asked: its preempt count, and in an interrupt what it is at. The kernel keeps all of it in each
 * CPU's own section, whose variables BTF has (collector/percpu.rs). Where a kernel lacks one of them, programs follow
 * entries and exits instead. Device interrupts, which nothing tells apart, and timers of the wheel, which one CPU
 * lets expire for another, are followed either way.
 */
#ifndef PG_CONTEXT_H
#define PG_CONTEXT_H

/* Set by the loader: the CPUs are asked, and where (numbers of collector/percpu.rs). */
const volatile u32 asked = 0;
enum variable {
	PLACE_RUN_QUEUE = 0,
	PLACE_CURRENT,
	PLACE_PREEMPT_COUNT,
	PLACE_PENDING,	    /* soft interrupts that are still to be served */
	PLACE_SERVED,	    /* how many have been, by kind */
	PLACE_IN_NET_RX,
	PLACE_HRTIMERS,	    /* the timer that expires by the first of the clocks */
	PLACE_HRTIMER_STEP, /* from there to that of the next one */
	PLACE_BACKLOG_LIST, /* packets that no device's driver receives: in whose turn their queue is, ... */
	PLACE_BACKLOG_STATE, /* ... and whether there are any */
	PLACE_KSOFTIRQD,
	PLACES,
};
const volatile u32 places[PLACES] = {};

#define NET_RX_VECTOR 3
#define BLOCK_VECTOR 4
#define VECTORS 10
#define CLOCKS 8
#define NAPI_SCHEDULED 1

/* Bits of the preempt count. That bottom halves are only kept off is another one. */
#define SERVES_SOFTIRQ 0x100
#define IN_HARDIRQ 0xff0000 /* or in what cannot be masked */
#define KEEPS_CPU 0xff	    /* it is not to be preempted */

/*
 * Where this CPU's section is: the run queue of the current thread lies in it. The kernel's BTF is of the kernel that
 * runs, but believed only where the same thread and CPU are found there.
 */
static __noinline u64 find_section(struct cpu *c)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rq *rq = READ(task, se.cfs_rq, rq);
	u64 section = number(rq) - places[PLACE_RUN_QUEUE], current = 0;
	bpf_probe_read_kernel(&current, sizeof(current), (void *)(section + places[PLACE_CURRENT]));
	if (current != number(task) || READ(rq, cpu) != (int)bpf_get_smp_processor_id())
		return 0;
	c->section = section;
	return section;
}

/* 0 also where it cannot be told. */
static __always_inline u32 preempt_count(struct cpu *c)
{
	u64 section = c->section;
	u32 n = 0;
	if (!section)
		section = find_section(c);
	if (!section || bpf_probe_read_kernel(&n, sizeof(n), (void *)(section + places[PLACE_PREEMPT_COUNT])))
		return 0;
	return n;
}

/* SERVES_SOFTIRQ and IN_HARDIRQ of this CPU; 0 in a thread. */
static __always_inline u32 interrupts(struct cpu *c)
{
	c->preempt_count = preempt_count(c);
	return c->preempt_count & (SERVES_SOFTIRQ | IN_HARDIRQ);
}

static __always_inline bool in_interrupt(struct cpu *c)
{
	return asked ? interrupts(c) != 0 : c->irq || c->softirq || c->timer;
}

/* Does a high-resolution timer expire on this CPU, right now? */
static __always_inline bool in_hrtimer(struct cpu *c)
{
	u64 at = c->section + places[PLACE_HRTIMERS], running = 0;
	for (int i = 0; i < CLOCKS; i++) {
		u64 timer = 0;
		bpf_probe_read_kernel(&timer, sizeof(timer), (void *)at);
		running |= timer;
		at += places[PLACE_HRTIMER_STEP];
	}
	return running != 0;
}

/* Are packets received on this CPU, which serves a soft interrupt? The mark also stays where some were left for the
 * next time, which is then pending (until it comes: then tasklets and packets that were sent are dealt with first). */
static __always_inline bool in_net_rx(struct cpu *c)
{
	u8 in = 0, pending = 0;
	bpf_probe_read_kernel(&in, sizeof(in), (void *)(c->section + places[PLACE_IN_NET_RX]));
	bpf_probe_read_kernel(&pending, sizeof(pending), (void *)(c->section + places[PLACE_PENDING]));
	return in && !(pending & 1 << NET_RX_VECTOR);
}

/*
 * Packets are received on this CPU: has the thread on it sent them, to somebody on this host? It lets the soft interrupt
 * come when it has, and is not preempted meanwhile; a device's interrupt serves them on top of whatever it interrupted.
 * And they come from the backlog, whose turn it is while it has packets and is in no list; those of most devices do not.
 */
static __noinline bool sent_by_thread(struct cpu *c)
{
	if (!asked)
		return !c->net_raised_by_irq;
	if (!(c->preempt_count & KEEPS_CPU))
		return false;
	u64 list = c->section + places[PLACE_BACKLOG_LIST], next = 0, state = 0;
	bpf_probe_read_kernel(&next, sizeof(next), (void *)list);
	bpf_probe_read_kernel(&state, sizeof(state), (void *)(c->section + places[PLACE_BACKLOG_STATE]));
	return next == list && (state & NAPI_SCHEDULED);
}

/* `n`: what `interrupts` said. */
static __noinline u32 interrupt_now(struct cpu *c, u32 n)
{
	/* Timers first: on some machines they come by a device interrupt. */
	if (c->timer)
		return CTX_TIMER;
	/* Packets are received while no such timer expires, other than in an interrupt on top. */
	if (!(n & IN_HARDIRQ) && in_net_rx(c))
		return CTX_NET_RX;
	if (in_hrtimer(c))
		return CTX_TIMER;
	return n & IN_HARDIRQ ? CTX_HARDIRQ : CTX_SOFTIRQ;
}

static __always_inline u8 context_now(struct cpu *c)
{
	if (!c)
		return CTX_TASK;
	if (asked) {
		u32 n = interrupts(c);
		return n ? interrupt_now(c, n) : CTX_TASK;
	}
	if (c->timer)
		return CTX_TIMER;
	if (c->irq)
		return CTX_HARDIRQ;
	if (c->softirq)
		return c->softirq == NET_RX_VECTOR + 1 ? CTX_NET_RX : CTX_SOFTIRQ;
	return CTX_TASK;
}

/*
 * The soft interrupt that is being served, as a number that none before it had: how many have been, since the kernel
 * counts them before it serves them. `blocks`: how many of them were for disks.
 */
static __noinline u32 soft_interrupt(struct cpu *c, u32 *blocks)
{
	u32 served[VECTORS] = {}, all = 0;
	bpf_probe_read_kernel(served, sizeof(served), (void *)(c->section + places[PLACE_SERVED]));
	for (int i = 0; i < VECTORS; i++)
		all += served[i];
	*blocks = served[BLOCK_VECTOR];
	return all;
}

/* A switch: whatever entry or exit was missed is forgotten here, since no interrupt outlasts one. */
static __always_inline void no_interrupt(struct cpu *c)
{
	c->softirq = 0;
	c->irq = 0;
	c->timer = 0;
	c->completing = COMPLETED;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector)
{
	struct cpu *c = this_cpu();
	if (c)
		c->softirq = vector + 1;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit, unsigned int vector)
{
	struct cpu *c = this_cpu();
	if (c) {
		c->softirq = 0;
		c->completing = COMPLETED;
	}
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_entry, int irq)
{
	struct cpu *c = this_cpu();
	if (c)
		c->irq++;
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_exit, int irq)
{
	struct cpu *c = this_cpu();
	if (c && c->irq) {
		c->irq--;
		if (c->completing == COMPLETING_IN_IRQ)
			c->completing = COMPLETED;
	}
	return 0;
}

static __always_inline void timer_begins(void)
{
	struct cpu *c = this_cpu();
	if (c)
		c->timer++;
}

static __always_inline void timer_ends(void)
{
	struct cpu *c = this_cpu();
	if (c && c->timer)
		c->timer--;
}

static void overdue_uses(void);

/* Also where CPUs are asked, for messages: they look here whether any have waited too long. */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_hrtimer_entry, struct hrtimer *timer)
{
	if (!asked)
		timer_begins();
	if (messages)
		overdue_uses();
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(on_hrtimer_exit, struct hrtimer *timer)
{
	timer_ends();
	return 0;
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(on_timer_entry, struct timer_list *timer)
{
	timer_begins();
	return 0;
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(on_timer_exit, struct timer_list *timer)
{
	timer_ends();
	return 0;
}

#endif
