/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * How much a disk did for whom: who waits for a disk waits behind the others' requests. Each is told as a message
 * to the disk, and where a thread is the disk (a loop device) as one received by that thread; faster than records may
 * be sent, those of one thread are added up.
 */
#ifndef PG_REQUEST_H
#define PG_REQUEST_H

#define DISK_USERS 4

struct disk_use {
	struct flow flow;
	struct object disk;
	u32 tid, tgid;
	u64 direction;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DISK_USERS);
	__type(key, u32);
	__type(value, struct disk_use);
} disk_uses SEC(".maps");

/* A request of `bytes` that `s` made to the disk (direction 0) or that it served as the disk (1: a loop device is a
 * thread) was completed now. */
static __noinline void disk_used(struct submitted *s, struct object *disk, u32 bytes, struct cpu *c, u32 direction)
{
	u64 now = c->disk_time;
	u32 at = (s->tid ^ disk->id) & (DISK_USERS - 1);
	struct disk_use *u = bpf_map_lookup_elem(&disk_uses, &at);
	if (!u || !bytes)
		return;
	struct flow *f = &u->flow;
	bool other = u->tid != s->tid || u->disk.id != disk->id || u->direction != direction;
	/* What could not be told at once, of another thread. */
	if (f->count && other)
		send_flow(f, &u->disk, u->direction, u->tid, u->tgid);
	if (!f->count) {
		u->tid = s->tid;
		u->tgid = s->tgid;
		u->disk = *disk;
		u->direction = direction;
		f->first = s->time;
		f->bytes = 0;
		f->position = 0;
	}
	f->count++;
	f->bytes += bytes;
	f->last = now;
	if (tokens(c, 1, now) || f->bytes > FLOW_BYTES)
		send_flow(f, &u->disk, u->direction, u->tid, u->tgid);
}

#endif
