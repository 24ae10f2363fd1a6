/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Disk requests: an interrupt that completes one wakes who waits for its pages; whoever submitted it is the
 * cause, not the thread that happened to be interrupted.
 */
#ifndef PG_DISK_H
#define PG_DISK_H

/* Who submitted a request that is under way. */
struct submitted {
	u32 tid, tgid;
	u64 time;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct submitted);
} requests SEC(".maps");

/* A waking this long after a completion on the same CPU, in an interrupt, is by that completion: what the end of a
 * request causes may be left to another interrupt. */
#define COMPLETION_NS 100000
/* So many soft interrupts for disks may follow one another until ksoftirqd sleeps again. */
#define MOST_LEFT 64

/* Completions are to be dealt with on this CPU: of a device, in its interrupt, or of a disk that is served by a
 * thread (a loop device): then that thread is who ends the wait. */
static __always_inline void completed_by(struct cpu *c)
{
	struct task_struct *task = bpf_get_current_task_btf();
	bool device = in_interrupt(c);
	c->completer_tid = device ? 0 : task->pid;
	c->completer_tgid = device ? 0 : task->tgid;
}

/*
 * A thread wakes another one, where CPUs are asked: if that is this CPU's ksoftirqd and there are completions to deal
 * with, they are the waker's. It need not be woken again for others that it finds when it runs.
 */
static __noinline void leaves_completions(struct cpu *c, struct task_struct *task)
{
	u64 ksoftirqd = 0;
	u8 pending = 0;
	u32 blocks;
	if (!c->section)
		return;
	bpf_probe_read_kernel(&ksoftirqd, sizeof(ksoftirqd), (void *)(c->section + places[PLACE_KSOFTIRQD]));
	bpf_probe_read_kernel(&pending, sizeof(pending), (void *)(c->section + places[PLACE_PENDING]));
	if (ksoftirqd != number(task) || !(pending & 1 << BLOCK_VECTOR))
		return;
	completed_by(c);
	soft_interrupt(c, &blocks);
	c->left = blocks + 1;
	c->left_to = task->pid;
}

/* Is the `blocks`-th soft interrupt for disks, which is served now, for what a thread has left? */
static __always_inline bool was_left(struct cpu *c, u32 blocks)
{
	if (c->left == blocks)
		return true;
	return blocks - c->left < MOST_LEFT && bpf_get_current_task_btf()->pid == c->left_to;
}

static __always_inline int submitted(struct request *rq, u64 flag)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 key = number(rq);
	struct submitted s = { .tid = task->pid, .tgid = task->tgid, .time = bpf_ktime_get_ns() };
	/* An interrupt (a request that is tried again) asks on behalf of nobody. */
	struct cpu *c = this_cpu();
	if (!s.tid || s.tgid == own_tgid || !c || in_interrupt(c))
		return 0;
	bpf_map_update_elem(&requests, &key, &s, flag);
	return 0;
}

/* The bio becomes a request, in the context of who submits it. */
SEC("tp_btf/block_io_start")
int BPF_PROG(on_disk_start, struct request *rq)
{
	return submitted(rq, BPF_ANY);
}

/* The request goes to the device: for queues that keep no statistics, which have no start. */
SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_disk_issue, struct request *rq)
{
	return submitted(rq, BPF_NOEXIST);
}

static __noinline void send_disk_name(struct object *o, struct gendisk *disk)
{
	u64 hash;
	struct rec_name *r = new_name(o, NAME_TEXT, ROOM_DISK, &hash);
	if (!r)
		return;
	__builtin_memcpy(r->text, "/dev/", 5);
	bpf_probe_read_kernel_str(r->text + 5, 32, disk->disk_name);
	send_name(r, 64, hash);
}

/* A request is completed here and now: is that in the soft interrupt for disks? */
static __noinline bool completes(struct cpu *c)
{
	if (!asked) {
		c->completing = c->irq ? COMPLETING_IN_IRQ : c->softirq ? COMPLETING_IN_SOFTIRQ : COMPLETED;
		return c->softirq == BLOCK_VECTOR + 1;
	}
	u32 n = interrupts(c), blocks;
	c->completing = c->irq ? COMPLETING_IN_IRQ : n == SERVES_SOFTIRQ ? COMPLETING_IN_SOFTIRQ : COMPLETED;
	if (n != SERVES_SOFTIRQ)
		return false;
	c->completing_in = soft_interrupt(c, &blocks);
	/* The first request that is completed after the kernel began with one more of them is completed in that. */
	if (blocks != c->blocks) {
		c->blocks = blocks;
		c->block = c->completing_in;
	}
	return c->block == c->completing_in && was_left(c, blocks);
}

static __noinline void disk_used(struct submitted *s, struct object *disk, u32 bytes, struct cpu *c, u32 direction);

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_disk_complete, struct request *rq, unsigned char error, unsigned int bytes)
{
	u64 key = number(rq);
	struct submitted *s = bpf_map_lookup_elem(&requests, &key);
	struct cpu *c = this_cpu();
	if (!s || !c)
		return 0;
	struct gendisk *disk = rq->q->disk;
	if (disk) {
		struct object o = { .kind = K_BLOCK };
		o.id = user_device(disk->part0->bd_dev);
		c->disk = o.id;
		bool served = completes(c) && c->completer_tid;
		c->disk_tid = served ? c->completer_tid : s->tid;
		c->disk_tgid = served ? c->completer_tgid : s->tgid;
		c->disk_time = bpf_ktime_get_ns();
		send_disk_name(&o, disk);
		if (messages)
			disk_used(s, &o, bytes, c, 0);
		if (messages && served) {
			s->tid = c->completer_tid;
			s->tgid = c->completer_tgid;
			disk_used(s, &o, bytes, c, 1);
		}
	}
	bpf_map_delete_elem(&requests, &key);
	return 0;
}

/* Is what happens at `now`, in an interrupt, by the disk request that was completed last? */
static __noinline bool just_completed(struct cpu *c, u64 now)
{
	u32 blocks;
	if (now - c->disk_time < COMPLETION_NS)
		return true;
	if (c->completing != (c->irq ? COMPLETING_IN_IRQ : COMPLETING_IN_SOFTIRQ))
		return false;
	/* Where CPUs are asked, nobody told that the soft interrupt was left. */
	return !asked || c->irq || c->completing_in == soft_interrupt(c, &blocks);
}

/* A thread is woken in an interrupt: by a disk request that was just completed? */
static __always_inline void disk_waker(struct thread *t, struct cpu *c, u64 now)
{
	if (!c || !just_completed(c, now))
		return;
	t->waker = c->disk_tid;
	t->waker_tgid = c->disk_tgid;
	t->waker_object.kind = K_BLOCK;
	t->waker_object.id = c->disk;
	t->waker_object.peer = 0;
}

#endif
