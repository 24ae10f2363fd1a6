/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Threads that could run but may not: a control group above them has used up its quota of CPU time. They look
 * runnable, and no tracepoint tells. Looked at only after a thread waited long for a CPU.
 */
#ifndef PG_QUOTA_H
#define PG_QUOTA_H

#define QUOTA_DELAY_NS 2000000
#define QUOTA_LEVELS 12
#define NO_QUOTA (~0ULL)

/* Of each group with a quota: how long it has been throttled, and when that was last seen to have grown. */
struct throttle {
	u64 total, grown;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct throttle);
} throttles SEC(".maps");

/* Was the thread, runnable since `since`, held back by a quota? */
static __noinline bool throttled(struct task_struct *task, u64 since, u64 now)
{
	if (!bpf_core_field_exists(task->sched_task_group) ||
	    !bpf_core_field_exists(((struct task_group *)0)->cfs_bandwidth))
		return false;
	struct task_group *g = READ(task, sched_task_group);
	for (int i = 0; i < QUOTA_LEVELS; i++) {
		if (!g)
			break;
		u64 quota = READ(g, cfs_bandwidth.quota);
		if (quota && quota != NO_QUOTA) {
			u64 key = number(g), total = READ(g, cfs_bandwidth.throttled_time);
			struct throttle *known = bpf_map_lookup_elem(&throttles, &key);
			struct throttle t = { .total = total, .grown = total ? now : 0 };
			if (!known)
				bpf_map_update_elem(&throttles, &key, &t, BPF_ANY);
			else if (known->total != total)
				*known = t;
			else
				t.grown = known->grown;
			if (t.grown >= since)
				return true;
		}
		g = READ(g, parent);
	}
	return false;
}

#endif
