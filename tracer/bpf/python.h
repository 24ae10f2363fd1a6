/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Frames of the Python interpreter, read in a sample of a thread that executes it: only here does the thread
 * stand still. The collector names the threads, and knows what the words mean.
 */
#ifndef PG_PYTHON_H
#define PG_PYTHON_H

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
struct rec_python {
	u8 type, whole;
	u16 count;
	u32 tid;
	u64 time;
	struct py_frame frames[PY_FRAMES];
};

static __always_inline bool py_word(u64 *to, u64 at)
{
	return !bpf_probe_read_user(to, sizeof(*to), (void *)at);
}

/* Sends the frames of the current thread, before its sample. */
static __noinline void send_python(u32 tid, u32 tgid, u64 now)
{
	struct python *p = bpf_map_lookup_elem(&pythons, &tid);
	u64 frame = 0;
	if (!p || p->tgid != tgid || !py_word(&frame, p->state + p->current))
		return;
	if (p->then != 0xffff && frame && !py_word(&frame, frame + p->then))
		return;
	if (!frame)
		return;
	struct rec_python *r = bpf_ringbuf_reserve(&samples, sizeof(*r), 0);
	if (!r)
		return;
	u32 count = 0;
	for (u32 i = 0; i < PY_FRAMES; i++) {
		struct py_frame *f = &r->frames[i];
		f->marks = 0;
		if (!frame || !py_word(&f->code, frame + p->code) ||
		    !py_word(&f->instruction, frame + p->instruction) ||
		    (p->marks && !py_word(&f->marks, frame + PY_MARKS)) || !py_word(&frame, frame + p->previous))
			break;
		count = i + 1;
	}
	r->type = REC_PYTHON;
	r->whole = !frame;
	r->count = count;
	r->tid = tid;
	r->time = now;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

#endif
