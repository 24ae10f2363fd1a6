/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Calls and their arguments: x86-64 numbers by class, what arguments point to, time-outs. */
#ifndef PG_CALL_H
#define PG_CALL_H

enum class {
	C_NONE = 0,
	C_FD,	    /* the first argument is the descriptor */
	C_FD_RECV,  /* the same, with the socket's receive time-out */
	C_FD_SEND,  /* the same, with its send time-out */
	C_FD_PAIR,  /* sendfile: first and second */
	C_SPLICE,   /* first and third */
	C_FLOCK,
	C_FCNTL,
	C_FUTEX,
	C_FUTEX2,
	C_POLL,
	C_PPOLL,
	C_SELECT,
	C_PSELECT,
	C_EPOLL,
	C_EPOLL2,
	C_NANOSLEEP,
	C_CLOCK_NANOSLEEP,
	C_WAIT4,
	C_WAITID,
	C_SYSV,
	C_SEMTIMEDOP,
	C_RECVMMSG,
	C_SIGTIMEDWAIT,
	C_PATH,	  /* the first argument is a path */
	C_PATHAT, /* the second is */
	C_EXIT,
	C_RESTART,
};

#define CALLS 512
const volatile u8 class_of[CALLS] = {
	[0] = C_FD_RECV, [1] = C_FD_SEND, [17] = C_FD, [18] = C_FD, [19] = C_FD_RECV, [20] = C_FD_SEND, /* read.. writev */
	[2] = C_PATH, [4] = C_PATH, [6] = C_PATH, [21] = C_PATH, [59] = C_PATH, [76] = C_PATH, [80] = C_PATH,
	[82] = C_PATH, [83] = C_PATH, [84] = C_PATH, [85] = C_PATH, [87] = C_PATH, [89] = C_PATH, [137] = C_PATH,
	[257] = C_PATHAT, [258] = C_PATHAT, [262] = C_PATHAT, [263] = C_PATHAT, [264] = C_PATHAT, [267] = C_PATHAT,
	[269] = C_PATHAT, [332] = C_PATHAT, [437] = C_PATHAT, [439] = C_PATHAT,
	[5] = C_FD, [8] = C_FD, [16] = C_FD, [74] = C_FD, [75] = C_FD, [77] = C_FD, [78] = C_FD, [217] = C_FD,
	[277] = C_FD, [285] = C_FD, [306] = C_FD, /* fstat, lseek, ioctl, fsync.. syncfs */
	[295] = C_FD, [296] = C_FD, [327] = C_FD_RECV, [328] = C_FD_SEND, /* preadv.. pwritev2 */
	[42] = C_FD_SEND, [43] = C_FD_RECV, [288] = C_FD_RECV, [48] = C_FD, /* connect, accept, accept4, shutdown */
	[44] = C_FD_SEND, [45] = C_FD_RECV, [46] = C_FD_SEND, [47] = C_FD_RECV, [307] = C_FD_SEND,
	[299] = C_RECVMMSG, [40] = C_FD_PAIR, [326] = C_SPLICE, [275] = C_SPLICE, [276] = C_FD_PAIR, [278] = C_FD,
	[286] = C_FD, [287] = C_FD, [426] = C_FD, /* timerfd_settime, timerfd_gettime, io_uring_enter */
	[73] = C_FLOCK, [72] = C_FCNTL,
	[202] = C_FUTEX, [455] = C_FUTEX2, [454] = C_FUTEX2,
	[7] = C_POLL, [271] = C_PPOLL, [23] = C_SELECT, [270] = C_PSELECT,
	[232] = C_EPOLL, [281] = C_EPOLL, [441] = C_EPOLL2,
	[35] = C_NANOSLEEP, [230] = C_CLOCK_NANOSLEEP,
	[61] = C_WAIT4, [247] = C_WAITID,
	[65] = C_SYSV, [69] = C_SYSV, [70] = C_SYSV, [220] = C_SEMTIMEDOP, [66] = C_SYSV, [71] = C_SYSV,
	[242] = C_FD, [243] = C_FD, [128] = C_SIGTIMEDWAIT,
	[60] = C_EXIT, [231] = C_EXIT, [219] = C_RESTART,
};

/* Is `nr` one that restart_syscall may stand for? */
static __always_inline bool restarts(u32 class)
{
	return class == C_NANOSLEEP || class == C_CLOCK_NANOSLEEP || class == C_POLL || class == C_FUTEX;
}

/* User memory: of the current thread with faults off, or (task iterator, may sleep) of any. */
#define READ_USER(remote, task, to, size, from)                                                     \
	((remote) ? bpf_copy_from_user_task(to, size, (const void *)(from), task, 0)                \
		  : bpf_probe_read_user(to, size, (const void *)(from)))

#define POLL_MAX 16

/* Read what the arguments point to into the scratch room: time-outs, descriptors, a path. */
static __always_inline void fetch(bool remote, struct task_struct *task, struct regs *r, struct scratch *s, u32 class)
{
	u64 time = 0;
	u32 n;
	s->time_given = 0;
	s->time_read = 0;
	switch (class) {
	case C_FUTEX:
	case C_EPOLL2:
	case C_SEMTIMEDOP:
		time = r->r10;
		break;
	case C_FUTEX2:
	case C_SELECT:
	case C_PSELECT:
	case C_RECVMMSG:
		time = r->r8;
		break;
	case C_PPOLL:
	case C_CLOCK_NANOSLEEP:
	case C_SIGTIMEDWAIT:
		time = r->dx;
		break;
	case C_NANOSLEEP:
		time = r->di;
		break;
	}
	if (time) {
		s->time_given = 1;
		s->time_read = !READ_USER(remote, task, s->time, sizeof(s->time), time);
	}
	if (class == C_POLL || class == C_PPOLL) {
		n = r->si > POLL_MAX ? POLL_MAX : r->si;
		s->words_read = n && n <= POLL_MAX && !READ_USER(remote, task, s->words, n * 8, r->di);
	} else if (class == C_SELECT || class == C_PSELECT) {
		/* Descriptors below 256, of each of the three sets. */
		n = r->di > 256 ? 4 : (r->di + 63) / 64;
		s->words_read = n && n <= 4;
		if (!r->si || !s->words_read || READ_USER(remote, task, s->words, n * 8, r->si))
			__builtin_memset(s->words, 0, 32);
		if (!r->dx || !s->words_read || READ_USER(remote, task, s->words + 4, n * 8, r->dx))
			__builtin_memset(s->words + 4, 0, 32);
		if (!r->r10 || !s->words_read || READ_USER(remote, task, s->words + 8, n * 8, r->r10))
			__builtin_memset(s->words + 8, 0, 32);
	} else if (class == C_FCNTL) {
		s->words_read = !READ_USER(remote, task, s->words, 2, r->dx);
	} else if (class == C_PATH || class == C_PATHAT) {
		u64 at = class == C_PATH ? r->di : r->si;
		__builtin_memset(s->name.text, 0, 128);
		if (remote)
			bpf_copy_from_user_task(s->name.text, 127, (void *)at, task, 0);
		else
			bpf_probe_read_user_str(s->name.text, 127, (void *)at);
	}
}

#define NO_TIMEOUT (~0ULL)

static __always_inline u64 timeout_ms(s32 ms)
{
	return ms < 0 ? NO_TIMEOUT : (u64)ms * 1000000 + !ms;
}

/* The timespec (or timeval, `micro`) that was fetched, as ns; none given: no time-out. Unreadable: 0. */
static __always_inline u64 timeout_of(struct scratch *s, bool micro)
{
	if (!s->time_given)
		return NO_TIMEOUT;
	if (!s->time_read)
		return 0;
	u64 ns = s->time[0] * 1000000000ULL + (micro ? s->time[1] * 1000 : s->time[1]);
	return ns + !ns;
}

/* A moment of `clock` (0 real time, else monotonic) as ns from `now`. */
static __always_inline u64 from_now(u64 moment, bool real, u64 now)
{
	if (moment == NO_TIMEOUT || !moment)
		return moment;
	if (real) {
		struct control *c = controls();
		if (!c || !c->realtime_offset)
			return 0;
		now += c->realtime_offset;
	}
	return moment > now ? moment - now : 1;
}

/* The class of the call that a thread blocks in. restart_syscall goes on with the call before it. */
static __always_inline u32 blocked_class(struct thread *t)
{
	u32 nr = t->call;
	if (nr >= CALLS)
		return C_NONE;
	u32 class = class_of[nr & (CALLS - 1)];
	if (class != C_RESTART) {
		t->before_restart = nr;
		return class;
	}
	nr = t->before_restart;
	class = class_of[nr & (CALLS - 1)];
	if (!restarts(class))
		return C_NONE;
	t->call = nr;
	return class;
}

#endif
