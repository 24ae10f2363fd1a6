/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How long a unit's thread was ready to run without a CPU, or had one that was not there. */
#ifndef PG_DELAY_H
#define PG_DELAY_H

/* The kernel's clock of a run queue is brought up to date with each tick (HZ 250 and more), and a sample may come first. */
#define STALE_NS 4500000
#define NO_CLOCK_NS 1000000000

struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));
struct task_struct___delayed {
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

/* The run queue of the CPU that a thread has. */
static __always_inline struct rq *queue_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->se.cfs_rq) ? task->se.cfs_rq->rq : 0;
}

/*
 * For how long so far this CPU, which has `task`, was wanted here and had by others of the host that the machine is a guest
 * of, ns; 0 where neither the kernel nor the host counts that. As of the last time that its run queue's clock was read.
 */
static __always_inline u64 stolen_from(struct task_struct *task)
{
	struct rq *rq = queue_of(task);
	return rq && bpf_core_field_exists(rq->prev_steal_time_rq) ? rq->prev_steal_time_rq : 0;
}

/* The thread gets this CPU, which `task` has. */
static __always_inline void gets_cpu(struct unit *u, struct task_struct *task, u64 now)
{
	struct rq *rq = queue_of(task);
	u->stolen_so_far = stolen_from(task);
	u->apart = rq && rq->clock ? now - rq->clock : 0;
}

/*
 * How long the thread, which has the CPU, was ready without one since its unit began. The kernel counts that up to when a
 * thread gets the CPU, which for the unit's beginning is later than the event that begins it: hence the first look after.
 * And how long of what it had one the host had that.
 */
static __always_inline void look_at_delay(struct unit *u, struct task_struct *of)
{
	u64 stolen = stolen_from(of);
	u->stolen += stolen - u->stolen_so_far;
	u->stolen_so_far = stolen;
	struct task_struct___delayed *task = (void *)of;
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return;
	u64 delay = task->sched_info.run_delay;
	if (u->delay == NOT_LOOKED)
		u->delay = delay;
	u->ready = delay - u->delay;
}

/* May there be stolen time that the kernel has not counted yet? Once in a unit: CPUs may be without ticks. */
static __always_inline bool waits_for_tick(struct unit *u, struct task_struct *task, u64 now)
{
	struct rq *rq = queue_of(task);
	if (u->put_off || !u->apart || !rq)
		return false;
	s64 behind = now - u->apart - rq->clock;
	if (behind < STALE_NS || behind > NO_CLOCK_NS)
		return false;
	u->put_off = 1;
	return true;
}

#endif
