/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Frames of the Python interpreter, read in a sample of a thread that executes it: only here does the thread stand still. */
#ifndef PG_PYTHON_H
#define PG_PYTHON_H

#include "python_frames.h"

struct rec_python {
	u8 type, whole;
	u16 count;
	u32 tid;
	u64 time;
	struct py_frame frames[PY_FRAMES];
};

/* Sends the frames of the current thread, before its sample. */
static __noinline void send_python(u32 tid, u32 tgid, u64 now)
{
	u64 frame = 0;
	struct python *p = python_of(tid, tgid, &frame);
	if (!p)
		return;
	struct rec_python *r = bpf_ringbuf_reserve(&samples, sizeof(*r), 0);
	if (!r)
		return;
	r->count = python_frames(p, &frame, r->frames);
	r->type = REC_PYTHON;
	r->whole = !frame;
	r->tid = tid;
	r->time = now;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

#endif
