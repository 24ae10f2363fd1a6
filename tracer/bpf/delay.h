/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How long a unit's thread was ready to run without a CPU. */
#ifndef PG_DELAY_H
#define PG_DELAY_H

struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));
struct task_struct___delayed {
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

/*
 * How long the thread, which has the CPU, was ready without one since its unit began. The kernel counts that up to when a
 * thread gets the CPU, which for the unit's beginning is later than the event that begins it: hence the first look after.
 */
static __always_inline void look_at_delay(struct unit *u, struct task_struct *of)
{
	struct task_struct___delayed *task = (void *)of;
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return;
	u64 delay = task->sched_info.run_delay;
	if (u->delay == NOT_LOOKED)
		u->delay = delay;
	u->ready = delay - u->delay;
}

#endif
