/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Frames of the Python interpreter, read while the thread that it runs stands still: by the programs that it runs into.
 * User space names the threads, and knows what the words mean.
 */
#ifndef PG_PYTHON_FRAMES_H
#define PG_PYTHON_FRAMES_H

#define PY_FRAMES 48
#define PY_MARKS 64 /* where a frame has its owner and whether it is an entry, if it has them */

/* Where a thread's frames begin, and where the words of a frame are. */
struct python {
	u64 state;
	u32 tgid;
	u16 current, then; /* within the state; within what that points to, or 0xffff */
	u16 previous, code, instruction, marks;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct python);
} pythons SEC(".maps");

struct py_frame {
	u64 code, instruction, marks;
};
static __always_inline bool py_word(u64 *to, u64 at)
{
	return !bpf_probe_read_user(to, sizeof(*to), (void *)at);
}

/* Of the current thread: how it is read, with its innermost frame in `frame`; 0 when it is not, or in no function. */
static __always_inline struct python *python_of(u32 tid, u32 tgid, u64 *frame)
{
	struct python *p = bpf_map_lookup_elem(&pythons, &tid);
	if (!p || p->tgid != tgid || !py_word(frame, p->state + p->current))
		return 0;
	if (p->then != 0xffff && *frame && !py_word(frame, *frame + p->then))
		return 0;
	return *frame ? p : 0;
}

/* Reads the frames from `frame` outwards; how many. `frame` is 0 afterwards when these are all. */
static __always_inline u32 python_frames(struct python *p, u64 *frame, struct py_frame *frames)
{
	u64 at = *frame;
	u32 count = 0;
	for (u32 i = 0; i < PY_FRAMES; i++) {
		struct py_frame *f = &frames[i];
		f->marks = 0;
		if (!at || !py_word(&f->code, at + p->code) || !py_word(&f->instruction, at + p->instruction) ||
		    (p->marks && !py_word(&f->marks, at + PY_MARKS)) || !py_word(&at, at + p->previous))
			break;
		count = i + 1;
	}
	*frame = at;
	return count;
}

#endif
