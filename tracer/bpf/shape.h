/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Boundary waits that were seen in one thread, known again in others. Included by guard.bpf.c.
 *
 * The stack of a boundary wait, as far as it is looked at, is a row of return addresses. Where those lie, counted from
 * the stack pointer of the wait, is the same in each thread that executes the same code, since frames have a fixed size
 * there (where they have not, user space is asked as ever). Addresses are the same in all processes with one image:
 * those that were forked from each other and have not executed another program. So the first unit of a new thread or
 * session is under guard, too.
 */
#ifndef PG_SHAPE_H
#define PG_SHAPE_H

#define SHAPES 4096
#define VARIANTS 4 /* different stacks of one place in an image */
/* With the number of the loop: the wait is in its function, but not in the loop. */
#define LEFT_AT 31
#define LEFT (1u << LEFT_AT)
#define LINKS 16   /* frames from a boundary wait to its loop; deeper ones are asked about in each thread */

struct shape_key {
	u64 image, ip;
	u32 variant, zero;
};

/* A return address, and where it lies above the stack pointer. */
struct link {
	u64 address;
	u32 at, zero;
};
struct shape {
	u32 loop;
	u32 count;	  /* of `links` */
	u32 frame, turn;  /* as in `struct unit` and `struct boundary`, above the stack pointer */
	struct link links[LINKS];
};
_Static_assert(sizeof(struct shape) == 272, "layout.rs");

/* Boundary waits, and what their calls return to. User space writes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SHAPES);
	__type(key, struct shape_key);
	__type(value, struct shape);
} shapes SEC(".maps");

struct mm_struct___image {
	unsigned long start_stack, mmap_base;
	void *exe_file;
} __attribute__((preserve_access_index));
struct task_struct___image {
	struct mm_struct___image *mm;
} __attribute__((preserve_access_index));

/* What a process has mapped where: inherited by children, new with each program that is executed. 0: not known. */
static __always_inline u64 image_of(struct task_struct *of)
{
	struct mm_struct___image *mm = BPF_CORE_READ((struct task_struct___image *)of, mm);
	if (!mm)
		return 0;
	u64 exe = (u64)BPF_CORE_READ(mm, exe_file);
	return mix(mix(exe, BPF_CORE_READ(mm, start_stack)), BPF_CORE_READ(mm, mmap_base)) | 1;
}

static __always_inline bool has_links(struct shape *s, u64 sp)
{
	for (u32 i = 0; i < LINKS; i++) {
		if (i >= s->count)
			break;
		u64 there;
		if (bpf_probe_read_user(&there, sizeof(there), (void *)(sp + s->links[i].at)) ||
		    there != s->links[i].address)
			return false;
	}
	return true;
}

/* Is the current thread, at this place with this stack, at a boundary that is known of another? */
static __always_inline struct shape *shape_of(u64 image, u64 ip, u64 sp)
{
	for (u32 i = 0; image && i < VARIANTS; i++) {
		struct shape_key key = { image, ip, i, 0 };
		struct shape *s = bpf_map_lookup_elem(&shapes, &key);
		if (!s)
			return 0;
		if (has_links(s, sp))
			return s;
	}
	return 0;
}

/* One more boundary wait of a thread; `call` is zeros where only the return was seen. Its bit, as `is_boundary` has it. */
static __always_inline u32 add_wait(struct unit *u, struct shape *s, struct place call, u64 sp)
{
	if (u->loop != s->loop) {
		/* It has come to another loop: of what it did in the one before no end was seen. */
		u->running = 0;
		u->turned = 0;
		__builtin_memset(u->waits, 0, sizeof(u->waits));
		u->loop = s->loop;
	}
	u->frame = sp + s->frame;
	u64 turn = sp + s->turn;
	u32 at = 0;
#pragma unroll
	for (int i = WAITS - 1; i >= 0; i--)
		if (!u->waits[i].turn)
			at = i;
	/* One of which only the return was seen is completed. */
#pragma unroll
	for (int i = WAITS - 1; i >= 0; i--)
		if (!u->waits[i].call.ip && u->waits[i].turn == turn)
			at = i;
	u->turned &= ~(1 << at);
	struct boundary *b = &u->waits[at & (WAITS - 1)];
	b->turn = turn;
	b->call = call;
	return 1 << at;
}

#endif
