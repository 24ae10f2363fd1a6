/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Options, maps and what is remembered of each thread and CPU. */
#ifndef PG_STATE_H
#define PG_STATE_H

/* Set by the loader before the programs are loaded. */
const volatile u32 own_tgid = 0;	   /* the recorder */
const volatile u32 kernel_stacks = 1;	   /* take kernel stacks of long waits and samples */
const volatile u32 user_stacks = 1;	   /* take copies of user stacks */
const volatile u32 messages = 0;	   /* the messages level */
const volatile u64 kernel_stack_ns = 1000000;  /* waits shorter than this have no kernel stack */
const volatile u64 waker_stack_ns = 1000000;   /* nor have their wakers a user stack */
const volatile u64 memo_ns = 1000000000;       /* how long a user stack stays memoised */
const volatile u64 jiffy_ns = 4000000;	       /* for socket time-outs */
const volatile u64 long_wait_ns = 1000000000;  /* when a wait is reported while it goes on */

/* What the task iterator is to do. */
enum pass { PASS_SEED = 1, PASS_LONG = 2, PASS_FLUSH = 3, PASS_USES = 4, PASS_FIND = 5 };

/* Whose system calls are recorded during a burst. */
enum burst_of { OF_THREADS = 1, OF_CHILDREN = 2 };
#define BURSTING 8

/* Changed by the collector while the programs run. */
struct control {
	u32 focus_generation; /* counts up when `focus` changes; 0: no focus */
	u32 pass;
	u64 realtime_offset; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	u32 burst;	     /* the number of the last burst that began */
	u32 all_calls;	     /* record system calls of every thread */
	u32 burst_of;
	u32 bursting[BURSTING]; /* these threads, or these processes' children; 0: none */
	u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control);
} control SEC(".maps");

/* Processes in focus. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u32);
} focus SEC(".maps");

/* Losses and totals, by CPU. Numbers of `pg_event::Kind::Lost::ring` first. */
enum count { LOST_EVENTS = 0, LOST_STACKS, LOST_SAMPLES, COUNT_LEFT, COUNT_UNREPORTED, COUNT_MESSAGES, COUNT_FOUND, COUNT_PASSED, COUNTS };
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} events SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} stacks SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} samples SEC(".maps");

/* Kernel stacks, names and sets sent already: each is sent once while it stays in here. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u64);
} sent SEC(".maps");

struct object {
	u64 id, peer;
	u32 kind, fd;
};

#define MEMO 8
/* A user stack copied lately. */
struct copied {
	u64 key, time;
};

#define WAIT_WORDS 7
#define WAKE_WORDS 6
#define STACK_WORDS 32
/*
 * What is remembered of a thread. Where many threads pass the CPU around, the cache lines touched here are
 * what a switch costs: what belongs together stays together. The kernel puts 8 bytes of its own before it,
 * in the same line.
 */
struct thread {
	u64 off, woken, in;
	u64 awake; /* when its last wait ended */
	u32 focus_generation;
	u32 left;	    /* blocked with messages that were not sent yet */
	u16 run_nr;	    /* off the CPU though runnable: the call it was in */
	u16 before_restart; /* the call that restart_syscall goes on with */
	u8 run_flags;
	u8 runnable; /* it left the CPU though runnable: `wait` is of the wait before */
	u8 told;     /* the collector knows `wait` and `wake` of the interval sent last, and `wait` is the same */
	u8 rewoken;  /* `wake` is another than that */
	u8 reported;
	u8 in_focus;
	u8 has_uses; /* there is a struct uses of it */
	u8 pad;
	u32 run_count; /* equal calls not sent yet (level `syscalls`) */
	/* What it waits on. */
	union {
		struct {
			struct object object;
			u64 timeout, user_stack;
			u32 op, value;
			u16 call;
			u8 state, flags;
			u32 wait_zero;
		};
		u64 wait[WAIT_WORDS];
	};
	/* Who woke it, and by what. */
	union {
		struct {
			struct object waker_object;
			u64 waker_stack;
			u32 waker, waker_tgid;
			u16 waker_call;
			u8 context, wake_zero[5];
		};
		u64 wake[WAKE_WORDS];
	};
	/* Its kernel stack in a long wait, and where it waited. */
	u64 kernel_stack, kernel_stack_key, kernel_stack_time;
	u64 run_stack; /* of one that yields */
	struct copied stacks[MEMO];
	u64 set; /* the set of descriptors that it polled last: its members were sent */
	/* The system call it is in, and equal ones before it (level `syscalls`). */
	u64 call_start, run_start, run_end;
	struct object run_object;
	s64 run_result; /* of the call it is in, as above */
	u32 run_op;
	u16 run_call, now_call;
	u32 call_burst; /* the burst in which that call began */
	u32 pad_end;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

#define SLOTS 64
/* Messages of one thread over one socket in one direction, not yet sent. */
struct flow {
	u64 first, last;
	u32 bytes, position, count, pad;
};
/* What each message touches: kept small, since there may be many. */
struct use {
	s64 cookie;
	u32 ends; /* the ports */
	u32 tcp;
	struct flow flow[2];
};
#define FLOW_BYTES (1U << 30) /* more than these are sent before they overflow */
/* Kept apart from struct thread: most threads have none. */
struct uses {
	u64 dirty[2];  /* by direction, a bit for each slot with messages */
	u64 oldest;    /* of these messages */
	u32 collected; /* the task iterator is sending them */
	u32 busy;      /* the thread itself is at it */
	/* The clock, see time_of_message. */
	u64 exact, time, tick;
	u32 ahead, skipped;
	struct use slot[SLOTS];
	struct object object[SLOTS];
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct uses);
} uses SEC(".maps");

/* Where the last disk request was completed, as long as that is not left. A request of a megabyte has hundreds of
 * pages, whose waiters are woken one after the other: that takes longer than COMPLETION_NS. */
enum completing { COMPLETED = 0, COMPLETING_IN_IRQ, COMPLETING_IN_SOFTIRQ };

/* In what interrupt this CPU is, as far as programs follow it (context.h). */
struct cpu {
	u32 softirq; /* vector + 1 */
	u32 irq;     /* depth of device interrupts */
	u32 timer;   /* depth of expiring timers */
	u32 net_raised_by_irq;
	u64 section; /* where the kernel keeps its variables of this CPU, 0: not known yet */
	u32 preempt_count; /* as `interrupts` found it last: just now, where that was asked in this program */
	u32 pad;
	/* How many records of messages may be sent at once: what one CPU adds to the ring stays bounded. */
	u32 tokens;
	u32 talked; /* the thread on it passed messages since it came */
	u64 tokens_at;
	/* The disk request completed last: its device, when, and who submitted it. */
	u64 disk, disk_time;
	u32 disk_tid, disk_tgid;
	/* The thread that asked for completions to be dealt with, 0 when a device did. */
	u32 completer_tid, completer_tgid;
	u32 completing; /* it was in what is being dealt with now (enum completing) */
	u32 completing_in; /* ... if in a soft interrupt, in which (soft_interrupt()) */
	/* How many soft interrupts for disks this CPU has served, and the last one in which a request was completed. */
	u32 blocks, block;
	/* The soft interrupt for disks that a thread left completions to, and the thread that was woken to serve it. */
	u32 left, left_to;
	u64 current; /* the thread that was seen to come last */
	/* The clock of the run queue (clock.h): when it was compared with the monotonic one, by how much that is ahead, and the
	 * time of the last switch. */
	u64 compared;
	s64 ahead;
	u64 switched;
	u64 readings; /* of the monotonic one that are to follow */
	u64 samples; /* of threads that waited a moment ago */
	u64 top[STACK_WORDS];   /* of the user stack at hand */
	u64 before[WAIT_WORDS]; /* what it waited on the last time: room for on_switch (Linux 6.1 gives 512 bytes of stack) */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* Room for what does not fit on the stack. One each for contexts that can interrupt one another. */
enum room { ROOM_SCHED = 0, ROOM_TASK, ROOM_ITER, ROOM_SAMPLE, ROOM_DISK, ROOMS };
struct scratch {
	union {
		struct rec_name name;
		struct rec_kstack kstack;
		struct rec_exec exec;
	};
	struct regs regs; /* of the thread at hand */
	struct rec_set set;
	u64 time[2];
	u64 words[16];
	u32 time_given, time_read, words_read; /* descriptors given to poll and select */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROOMS);
	__type(key, u32);
	__type(value, struct scratch);
} room SEC(".maps");

/* An index kept below a power of two, in a way the compiler cannot drop and the verifier can see. */
#define BOUND(i, size)                                \
	({                                            \
		asm volatile("%0 &= %1" : "+r"(i) : "i"((size)-1)); \
		i;                                    \
	})

static __always_inline struct scratch *scratch(u32 which)
{
	return bpf_map_lookup_elem(&room, &which);
}

static __always_inline void count(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&counts, &which);
	if (n)
		*n += 1;
}

static __always_inline struct control *controls(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline struct cpu *this_cpu(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&cpus, &zero);
}

/* A pointer as the number it is: functions verified on their own take no typed pointers. */
static __always_inline u64 number(void *pointer)
{
	void *volatile at = pointer;
	u64 value = 0;
	bpf_probe_read_kernel(&value, sizeof(value), (void *)&at);
	return value;
}

/* The number of the call that a thread is in (`nr` as its registers have it). That of a 32-bit program is
 * marked, and thereby of no class that anything is read of. */
static __always_inline u64 call_of(struct task_struct *task, u64 nr)
{
	return nr < COMPAT_CALL && (task->thread_info.status & TS_COMPAT) ? nr | COMPAT_CALL : nr;
}

/* Is this the first time (while remembered) that `hash` is to be sent? */
static __always_inline bool unsent(u64 hash)
{
	return !bpf_map_lookup_elem(&sent, &hash);
}

static __always_inline void mark_sent(u64 hash)
{
	u64 one = 1;
	bpf_map_update_elem(&sent, &hash, &one, BPF_ANY);
}

static __always_inline bool send(void *record, u64 size)
{
	if (!bpf_ringbuf_output(&events, record, size, BPF_RB_NO_WAKEUP))
		return true;
	count(LOST_EVENTS);
	return false;
}

#endif
