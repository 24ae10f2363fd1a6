/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Guards: what user space and the programs share (tracer/src/guards/layout.rs, records.rs), and the maps. */
#ifndef PG_GUARD_H
#define PG_GUARD_H

#include "python_frames.h"

#define THREADS 8192   /* guarded at a time */
#define LOOPS 16       /* of a profile */
#define FUNCTIONS 4096 /* probed */
#define TYPES 64       /* of a loop */
#define WAITS 4	       /* boundary waits of a thread */
#define ANY_WAIT ((1 << WAITS) - 1)
#define CANDIDATES 15  /* types that share a context; one that more share tells nothing */
#define NO_TYPE 0xffffffff
/* The cookie of a probe: how much lower the stack pointer is there than at the entry << 32 | this | number. */
#define STEPPED 0x80000000u
/* Of a turn's, behind the number of the loop: bytes from the return address to the probe. */
#define SKIP 16
#define STACK_BYTES 16384
#define KERNEL_FRAMES 64
/* New stacks of one thread that are asked about: so many, in so long. */
#define ASKS 32
#define ASK_NS 1000000000ULL
#define ASK_AGAIN_NS 10000000000ULL

/* Set once, before anything is attached. */
struct control {
	u64 hit_ns;	/* what a probe costs the thread it is hit by, */
	u64 step_ns;	/* and one whose instruction the kernel has to step through */
	u64 period_ns;	/* stacks of violations of a type: after one none for so long, */
	u64 longest_ns;	/* then for twice as long, up to this */
	u64 sparse_ns;	/* tell a unit of each loop in so long, to compare slow ones with; 0: none */
	u32 learning;	/* tell every unit, with its contexts */
	u32 given;	/* units begin and end at probes, not at waits */
	u32 stacks;	/* while learning, tell the stack of every call of a function, to compare with */
	u32 zero;
};
_Static_assert(sizeof(struct control) == 56, "layout.rs");

struct place {
	u64 ip, sp;
};

/* A boundary wait: the system call, zeros when none was seen, and the stack pointer where its call returned. */
struct boundary {
	struct place call;
	u64 turn;
};

/* A guarded thread. Written by user space before the thread's number is in `slots`, then by the programs. */
struct unit {
	u32 tid, tgid;
	u32 loop;
	u32 running;		 /* a unit is under way */
	u64 frame;		 /* stack pointer of the loop's frame: depths count from it */
	struct boundary waits[WAITS]; /* where it waits for the next unit */
	u64 start;		 /* of the unit */
	u64 spent;		 /* of its time, ours */
	u64 off;		 /* off the CPU since, 0: on it */
	u64 away;		 /* of the unit: off the CPU, until it got it back last, */
	u64 ready;		 /* and of that ready to run without one, until it left it last */
	u64 delay;		 /* what the kernel had counted of such when the unit began; not looked at yet: NOT_LOOKED */
	struct place asleep;	 /* where it blocks: in which system call, or which page is not there; zeros when it does not */
	u32 best, most;		 /* the type it is taken for, and its hits */
	u32 told;		 /* enum told */
	u32 woken;		 /* it began when the thread got the CPU back: from which of `waits`, a bit each; between
				    units, where it waits */
	u32 number;		 /* units so far */
	u32 slow;		 /* enum slow */
	u32 counted_as;		 /* the type that its violation was counted for */
	u32 turned;		 /* of which of `waits` the probe behind the call was come by, a bit each */
	u32 slot;		 /* its place in `units` */
	/* Of a unit that is learnt from, see learn.h. */
	u32 contexts;		 /* kept */
	u32 more;		 /* and not kept */
	u32 hazy;		 /* it may be several: a boundary between them may have passed without a probe, see sight.h */
	u16 hits[TYPES];
	u64 caller;		 /* given ones: what lay at `frame` as it began, the return address; 0: it is none */
	u32 returns;		 /* and it ends when the function returns */
	u32 withdrawn;		 /* see withdraw.h: its alarm was, of this type and 1; 0: none was */
	u64 again;		 /* told, it is told again with its stack when it has taken so long */
	/* See sight.h. */
	u64 held;		 /* when it was last known to be the unit that `start` is of */
	u64 first;		 /* when it began, if it is one; `start`: since when it must be one */
	u64 waited;		 /* between those, ready without a CPU */
	u64 least;		 /* the longest that a part of it was one for certain */
	u64 got;		 /* the CPU, or was counted to have it until then; 0: it has none */
	/* See served.h. */
	u64 served;		 /* the socket of the connection that it received from last */
	u32 answered;		 /* and has sent to since then */
	u32 came;		 /* the unit began with what was received, no wait before it */
	/* See delay.h. */
	u64 stolen;		 /* of the unit: it had this CPU, which the host had given to others */
	u64 stolen_so_far;	 /* what the kernel had counted of such on this CPU when it was looked at last */
	s64 apart;		 /* how far the run queue's clock was behind when the thread got the CPU; 0: not known */
	u32 put_off;		 /* once a sample told nothing since the kernel may not have counted that yet */
	u32 halts;		 /* it is off the CPU as one that a signal or a tracer has stopped */
	u64 halted;		 /* of `away`: so */
	u64 next;		 /* told, its stack is taken when it has taken so long */
};
_Static_assert(sizeof(struct unit) == 488, "layout.rs");

#define NOT_LOOKED (~0ULL)
/* Why it took too long: it was ready without a CPU for what it exceeds, or the host had that; or it would have done so with one. */
enum slow { IN_TIME = 0, STARVED, SLOW };

struct alarm {
	u64 quiet_until;	 /* no stacks before */
	u64 period;		 /* and none for so long after the next */
	u64 worst;		 /* longest that was told of this series; one far beyond is told at once */
};
#define FAR_BEYOND 4
/* A unit that goes on is told again when it has taken so many times as long: where it was first may be not yet what takes
 * long. */
#define AGAIN 8
/* Until then its stack is taken whenever it has taken longer by this part, for where it spends its time. */
#define NEXT_PART 8
struct guarded_type {
	u64 threshold;		 /* ns */
	u64 units, sum;		 /* that ended, and their ns */
	u64 violations;		 /* without those that were withdrawn */
	u64 starved;		 /* of them: STARVED */
	struct alarm alarm[2];	 /* for these, and for the others */
	/* See withdraw.h. */
	u64 withdrawn;		 /* units that seemed to be of this type and to take too long */
	u64 doubt_until;	 /* what seems to be of this type is told once that is settled */
	u64 doubt;		 /* for so long */
};

/* Whether a unit took too long: not yet; yes, and it was counted; yes, and it was told with its stack. */
enum told { UNTOLD = 0, COUNTED, TOLD };

/* Types are in order of their thresholds, but for some (ranks in guards.rs); the last one stands for units of no known type. */
struct guarded_loop {
	struct guarded_type types[TYPES + 1];
	u64 passed;		 /* when a unit was told that took no longer than it may */
	u64 abandoned;		 /* given units whose end was not come by */
	u64 busy;		 /* ns that units which ended had a CPU */
	/* See served.h: units that answered who had connected; one of them looked for more from the same. */
	u64 answered, ahead;
	u64 settles;		 /* who has taken so long is told, whatever it may turn out to be */
};
_Static_assert(sizeof(struct guarded_loop) == 7328, "layout.rs");

struct context_key {
	u32 loop, function, depth, zero;
};
struct candidates {
	u8 count;
	u8 type[CANDIDATES];
};

enum record {
	REC_STACK = 1, REC_UNIT, REC_VIOLATION, REC_ENDED, REC_FORK, REC_EXEC, REC_EXIT, REC_PASSED,
	REC_ENLISTED,		 /* a thread came under guard; `other` is its slot */
	REC_CALLER,		 /* a function whose calls are units returns to `start` */
	REC_CALL,		 /* a function was called */
	REC_LOOK,		 /* a rec_violation: where a unit is that was told and goes on */
	REC_WITHDRAWN,		 /* what was told of a unit does not hold: `of` is the type that it has turned out to be */
};
/* What saw a violation. */
enum seen { BY_CONTEXT = 0, BY_SWITCH, BY_SAMPLE, BY_SLEEP, BY_END };

struct head {
	u32 type;
	u32 tid, tgid;
	u32 loop;
	u64 time;
};

/* A stack that is not known yet. */
struct rec_stack {
	struct head head;
	u32 turn;		 /* hit by the probe behind the loop's own wait call, else a wait */
	u32 len;
	u64 image;		 /* of its process, see shape.h */
	struct regs regs;
	u8 data[STACK_BYTES];
};
_Static_assert(sizeof(struct rec_stack) == 16592, "records.rs");

/* A unit that takes too long. */
struct rec_violation {
	struct head head;
	u64 start, elapsed, threshold;
	u64 away, ready;	 /* of `elapsed`: off the CPU; of that ready without one */
	u64 stolen;		 /* of what was not off the CPU: the host had it */
	u64 halted;		 /* of `away`: stopped by a signal or a tracer */
	u32 of, seen;
	u32 number;
	u32 kernel_frames;
	u64 kernel[KERNEL_FRAMES];
	struct place place;	 /* BY_SWITCH, BY_END: where it slept last; no registers then */
	u32 len;
	u32 python;		 /* frames of Python that were read, the innermost; 0: none */
	struct py_frame frames[PY_FRAMES];
	struct regs regs;
	u8 data[STACK_BYTES];
};
_Static_assert(sizeof(struct rec_violation) == 18336, "records.rs");

/* A thread or process came or went, or a unit ended: one whose violation was told (and may have been withdrawn), or one that
 * took no longer than it may; or one is withdrawn. */
struct rec_life {
	struct head head;
	u64 start, elapsed;
	u32 other;		 /* REC_FORK: the parent; REC_ENDED, REC_PASSED, REC_WITHDRAWN: number of the unit */
	u32 of;
};
_Static_assert(sizeof(struct rec_life) == 48, "records.rs");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control);
} control SEC(".maps");

/* Guarded processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u32);
} targets SEC(".maps");

/* Guarded threads: places in `units`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS);
	__type(key, u32);
	__type(value, u32);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, THREADS);
	__type(key, u32);
	__type(value, struct unit);
} units SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LOOPS);
	__type(key, u32);
	__type(value, struct guarded_loop);
} loops SEC(".maps");

/* Of each CPU: the guarded thread that has it, by its place in `units` and one more; 0: none has. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} here SEC(".maps");

/* Contexts that tell types. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct context_key);
	__type(value, struct candidates);
} contexts SEC(".maps");

/* Stacks of waits that were asked about, by thread and place: when. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u64);
} asked SEC(".maps");

/* How many were asked about of a thread, and since when. */
struct asks {
	u64 since;
	u64 count;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, THREADS);
	__type(key, u32);
	__type(value, struct asks);
} asking SEC(".maps");

/* Slots for threads that come under guard. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, THREADS);
	__uint(key_size, 0);
	__uint(value_size, 4);
} spare SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} told SEC(".maps");

/* How often units came by functions. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FUNCTIONS);
	__type(key, u32);
	__type(value, u64);
} calls SEC(".maps");

/* Records for which there was no room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

#endif
