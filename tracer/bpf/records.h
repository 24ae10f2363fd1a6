/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Records as they travel through the rings. `tracer/src/collector/raw.rs` reads them by offset:
 * the assertions at the end of this file and the constants there must agree.
 * Times are CLOCK_MONOTONIC ns. All fields are little-endian.
 */
#ifndef PG_RECORDS_H
#define PG_RECORDS_H

enum record_type {
	REC_OFF = 1,	 /* an off-CPU interval that ended (or a snapshot of one) */
	REC_RUN = 2,	 /* off the CPU though runnable: the short form of REC_OFF */
	REC_NAME = 3,	 /* the name of an object */
	REC_SET = 4,	 /* the members of a set or an epoll instance */
	REC_KSTACK = 5,	 /* a kernel stack, by hash */
	REC_FORK = 6,
	REC_EXEC = 7,
	REC_EXIT = 8,
	REC_RENAME = 9,
	REC_SIGNAL = 10,
	REC_USTACK = 11, /* registers and a piece of user stack */
	REC_SAMPLE = 12, /* the same, as an on-CPU sample */
	REC_USE = 13,	 /* messages over one socket within one segment */
	REC_CALL = 14,	 /* a system call */
	REC_AGAIN = 15,	 /* an interval like the last one of its thread, but for the times */
	REC_REWOKEN = 16, /* an interval like the last one of its thread, but for the times and the waker */
	REC_WORK = 17,	 /* what a kernel worker that wakes somebody is doing, and for whom */
	REC_PYTHON = 18, /* Python frames of a sample; see python.h */
};

/* Numbers of pg_event::ObjectKind. */
enum object_kind {
	K_UNKNOWN = 0, K_FUTEX, K_PIPE, K_FIFO, K_UNIX_STREAM, K_UNIX_DATAGRAM, K_TCP, K_UDP, K_SOCKET,
	K_EVENTFD, K_EPOLL, K_TIMERFD, K_SIGNALFD, K_INOTIFY, K_PIDFD, K_IO_URING, K_FILE, K_FILE_LOCK,
	K_TTY, K_CHAR, K_BLOCK, K_CHILD, K_SET, K_SYSV, K_ANON, K_MEMORY, K_CGROUP, K_TIMER,
	K_WORK,
	K_NONE = 255,
};

/* Numbers of pg_event::OffState. */
enum off_state {
	OFF_RUNNABLE = 0, OFF_INTERRUPTIBLE, OFF_UNINTERRUPTIBLE, OFF_STOPPED, OFF_TRACED, OFF_FROZEN,
	OFF_IDLE, OFF_DEAD,
};

/* Numbers of pg_event::Context. */
enum context { CTX_NONE = 0, CTX_TASK, CTX_NET_RX, CTX_SOFTIRQ, CTX_HARDIRQ, CTX_TIMER };

enum off_flags {
	F_KERNEL = 1,	/* a kernel thread */
	F_SEEDED = 2,	/* the wait had begun before the recording */
	F_OPEN = 4,	/* the recording ends, the wait has not */
	F_LONG = 8,	/* the wait passed the long-wait threshold and goes on */
	F_THROTTLED = 16, /* runnable, but a quota of CPU time kept it off */
};

/* pg_event::TTY_PAUSED: the operation of a wait to write to a terminal whose output is paused. */
#define TTY_PAUSED 1

#define NO_CALL 0xffff
/* Marks the number of a call of a 32-bit program, which is one of i386. */
#define COMPAT_CALL 0x8000

struct rec_off {
	u8 type, state, context, flags;
	u32 tid;
	u64 time, start, woken;
	u32 tgid, waker;
	u32 waker_tgid;
	u16 call, waker_call;
	u16 cpu;
	u8 kind, waker_kind;
	u32 op;
	u32 value, fd;
	u64 timeout;
	u64 id, peer;
	u64 waker_id, waker_peer;
	u64 user_stack, kernel_stack, waker_stack;
};

/* REC_AGAIN, and the beginning of REC_REWOKEN. */
struct rec_again {
	u8 type, pad;
	u16 cpu;
	u32 tid;
	u64 time;
	u32 waited;    /* ns from the switch out to `time` */
	u32 woken_ago; /* ns from the waking to `time` */
	u64 kernel_stack;
};

struct rec_rewoken {
	struct rec_again again;
	u64 waker_id, waker_peer, waker_stack;
	u32 waker, waker_tgid;
	u16 waker_call;
	u8 context, waker_kind;
	u32 pad;
};

struct rec_run {
	u8 type, flags;
	u16 cpu;
	u32 tid;
	u64 time, start;
	u32 tgid;
	u16 call, pad;
	u64 woken;
	u64 user_stack;
};

#define NAME_BYTES 64
#define NAME_LEVELS 8
enum name_form {
	NAME_PATH = 0,	/* NAME_LEVELS slots of NAME_BYTES, leaf first, NUL-terminated */
	NAME_UNIX = 1,	/* sun_path, `len` bytes (+ 0x100: the peer's); the first may be NUL (abstract) */
	NAME_INET6 = 2,	/* local address, remote address: 16 bytes each */
	NAME_TEXT = 3,	/* NUL-terminated */
};
struct rec_name {
	u8 type, kind, form, pad;
	u32 len; /* NAME_PATH: slots in use, + 0x100 when the walk stopped before the root */
	u64 id, peer;
	char text[NAME_LEVELS * NAME_BYTES];
};

#define SET_MAX 32
struct member {
	u64 id, peer;
	u32 kind, fd;
};
struct rec_set {
	u8 type, kind;
	u16 count;
	u32 more; /* members beyond the last one */
	u64 id;
	struct member members[SET_MAX];
};

#define KFRAMES 48
struct rec_kstack {
	u8 type, pad[3];
	u32 count;
	u64 hash;
	u64 ip[KFRAMES];
};

struct rec_fork {
	u8 type, pad;
	u16 cpu;
	u32 tid;
	u64 time;
	u32 child, child_tgid;
	char comm[16];
};

#define ARGV_BYTES 2048
struct rec_exec {
	u8 type, pad;
	u16 cpu;
	u32 tid;
	u64 time;
	u32 tgid, len;
	char comm[16];
	char argv[ARGV_BYTES];
};

struct rec_exit {
	u8 type, pad;
	u16 cpu;
	u32 tid;
	u64 time;
	u32 tgid, status;
};

struct rec_rename {
	u8 type, pad;
	u16 cpu;
	u32 tid;
	u64 time;
	u32 tgid, pad2;
	char comm[16];
};

struct rec_signal {
	u8 type, signal;
	u16 cpu;
	u32 tid;
	u64 time;
	u32 tgid, target, target_tgid, pad;
};

#define STACK_SMALL 4096
#define STACK_LARGE 16384
struct stack_head {
	u8 type, flags;
	u16 cpu;
	u32 tid;
	u64 time;
	u32 tgid, len;
	u64 key;	  /* what records name the stack by */
	u64 kernel_stack; /* REC_SAMPLE: hash of the kernel stack, 0 in user mode */
	struct regs regs;
};
struct rec_stack_small {
	struct stack_head head;
	u8 data[STACK_SMALL];
};
struct rec_stack_large {
	struct stack_head head;
	u8 data[STACK_LARGE];
};

struct rec_use {
	u8 type, kind, direction, pad;
	u32 tid;
	u64 first, last;
	u32 tgid, count;
	u64 bytes, position;
	u64 id, peer;
};

struct rec_call {
	u8 type, kind;
	u16 call;
	u32 tid;
	u64 start, end;
	s64 result;
	u32 tgid, count;
	u32 op, pad;
	u64 id, peer;
};

struct rec_work {
	u8 type, pad;
	u16 cpu;
	u32 tid; /* the worker */
	u64 time;
	u32 tgid, requester;
	u32 requester_tgid, pad2;
	u64 queued;
	u64 id; /* of the function, an object of kind Work */
};

#define SAME(type, size) _Static_assert(sizeof(struct type) == size, #type)
SAME(rec_off, 128);
SAME(rec_run, 48);
SAME(rec_again, 32);
SAME(rec_rewoken, 72);
SAME(rec_name, 536);
SAME(rec_set, 784);
SAME(rec_kstack, 400);
SAME(rec_fork, 40);
SAME(rec_exec, 2088);
SAME(rec_exit, 24);
SAME(rec_rename, 40);
SAME(rec_signal, 32);
SAME(stack_head, 208);
SAME(rec_use, 64);
SAME(rec_call, 64);
SAME(rec_work, 48);

#endif
