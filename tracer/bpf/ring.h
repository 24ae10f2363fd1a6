/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * io_uring: what the requests are about that a thread waits for in io_uring_enter. They are not traced one by
 * one (a program that uses io_uring makes very many): the last entries of the submission queue are read when the
 * thread blocks, as many as have not been completed. With requests that complete more than once, or in another
 * order, that is a guess; when it cannot be right, the ring itself is what is waited for.
 */
#ifndef PG_RING_H
#define PG_RING_H

#define RING_MAX 8
#define RING_NO_ARRAY (1U << 16) /* IORING_SETUP_NO_SQARRAY */
#define RING_LARGE (1U << 10)	 /* IORING_SETUP_SQE128 */
#define FIXED_FILE 1		 /* IOSQE_FIXED_FILE: no descriptor */
#define BY_NUMBER 16		 /* IORING_ENTER_REGISTERED_RING: the ring has no descriptor either */

#define ENTER_CALL 426
#define RINGS 16 /* IO_RINGFD_REG_MAX */

/* The beginning of struct io_uring_sqe (linux/io_uring.h). */
struct request_head {
	u8 opcode, flags;
	u16 priority;
	s32 fd;
};

/* Names the files in flight instead of the ring `number` (`by_number`: one of those that the thread registered,
 * else a descriptor). */
int __noinline ring_requests(struct thread *t, u64 blocked, u32 number, bool by_number, u32 which)
{
	struct task_struct *task = (void *)blocked;
	struct scratch *s = scratch(which);
	/* A kernel may be built without. */
	if (!t || !s || !bpf_core_field_exists(task->io_uring) || !bpf_core_type_exists(struct io_ring_ctx))
		return 0;
	struct object *o = &t->object;
	struct file *file;
	if (by_number) {
		struct io_uring_task *own = READ(task, io_uring);
		file = READ(own, registered_rings[number & (RINGS - 1)]);
		o->kind = K_NONE;
		o->id = 0;
		o->peer = 0;
		if (!file)
			return 0;
		file_object(o, (u64)file, which);
	} else {
		file = (void *)file_of(task, number);
	}
	if (o->kind != K_IO_URING)
		return 0;
	struct io_ring_ctx *ring = READ(file, private_data);
	u32 head = READ(ring, cached_sq_head), entries = READ(ring, sq_entries), flags = READ(ring, flags);
	u32 flying = head - READ(ring, cached_cq_tail);
	u64 array = flags & RING_NO_ARRAY ? 0 : (u64)READ(ring, sq_array);
	u64 sqes = (u64)READ(ring, sq_sqes);
	if (!flying || flying > RING_MAX || !sqes)
		return 0;
	begin_set(s);
	for (u32 i = 0; i < RING_MAX; i++) {
		if (i >= flying)
			break;
		u32 at = (head - 1 - i) & (entries - 1);
		if (array && bpf_probe_read_kernel(&at, sizeof(at), (void *)(array + at * sizeof(u32))))
			return 0;
		struct request_head r;
		if (bpf_probe_read_kernel(&r, sizeof(r), (void *)(sqes + ((u64)(at & (entries - 1)) << (flags & RING_LARGE ? 7 : 6)))))
			return 0;
		if (r.flags & FIXED_FILE)
			return 0;
		if (r.fd >= 0)
			add_member(s, (u64)task, r.fd, which);
	}
	end_set(s, o);
	return 0;
}

#endif
