/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Lanes: a ring for each CPU, in memory that the collector has mapped, written by `on_switch` alone. That runs
 * with interrupts off and never within itself, so a record needs no lock and no helper: it costs a fifth of one
 * in the ring of the kernel's. Records of one CPU are in the order of their times; the collector merges the lanes
 * (`collector/lanes.rs`). x86 makes stores visible in the order of the program, so that whoever sees `head`
 * sees the records before it.
 */
#ifndef PG_LANE_H
#define PG_LANE_H

const volatile u32 lane_blocks = 64; /* of each lane, a power of two */

/* A record never lies in two blocks. Where one does not fit any more, a zero says that the next block goes on. */
#define BLOCK 4096
struct block {
	u64 words[BLOCK / 8];
};
/* Positions in bytes, ever growing. In cache lines of their own. */
struct lane {
	volatile u64 head; /* written here */
	u64 head_line[7];
	volatile u64 tail; /* written by the collector: what it has read */
	u64 tail_line[7];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs */
	__type(key, u32);
	__type(value, struct lane);
} lanes SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64); /* CPUs * lane_blocks */
	__type(key, u32);
	__type(value, struct block);
} blocks SEC(".maps");

/* Room for a record. */
struct place {
	struct lane *lane;
	u64 head; /* after the record */
	u32 cpu;
};

static __always_inline struct block *block_at(u32 cpu, u64 head)
{
	u32 n = cpu * lane_blocks + (((u32)(head / BLOCK)) & (lane_blocks - 1));
	return bpf_map_lookup_elem(&blocks, &n);
}

/* Room for a record of `size` bytes, a multiple of 8; NULL, and the loss counted, when there is none. */
static __always_inline void *lane_reserve(struct place *place, const u32 size)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct lane *l = bpf_map_lookup_elem(&lanes, &cpu);
	if (!l)
		goto lost;
	u64 head = l->head;
	u32 at = head & (BLOCK - 1);
	if (head - l->tail > (u64)(lane_blocks - 1) * BLOCK - size)
		goto lost;
	if (at > BLOCK - size) {
		struct block *full = block_at(cpu, head);
		if (full)
			full->words[at / 8] = 0;
		head += BLOCK - at;
	}
	struct block *b = block_at(cpu, head);
	if (!b)
		goto lost;
	at = head & (BLOCK - 1);
	asm volatile("" : "+r"(at));
	if (at > BLOCK - size)
		goto lost;
	place->lane = l;
	place->head = head + size;
	place->cpu = cpu;
	return (void *)b + at;
lost:
	count(LOST_EVENTS);
	return 0;
}

static __always_inline void lane_submit(struct place *place)
{
	asm volatile("" ::: "memory");
	place->lane->head = place->head;
}

#endif
